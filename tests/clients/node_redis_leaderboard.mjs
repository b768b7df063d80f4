// A leaderboard on node-redis: random games on a board that stays small and on one that grows large,
// compared with a table that the program keeps itself. Many scores are equal.
import { eachProtocol } from './_node_redis.mjs';
import { Board, Random } from './_models.mjs';
import { assert, check } from './_tap.mjs';

const random = new Random();
const rows = (reply) => reply.map(({ value, score }) => [value, score]);

// One random change, made to both. Scores are quarters, so that sums are exact.
async function play(client, key, board, players) {
  const player = random.pick(players);
  const old = board.scores.get(player);
  const points = random.below(60) / 4;
  switch (random.below(6)) {
    case 0:
      await client.zAdd(key, { value: player, score: points });
      board.scores.set(player, points);
      break;
    case 1: {
      const better = old === undefined || points > old;
      assert.equal(await client.zAdd(key, { value: player, score: points },
        { comparison: 'GT', CH: true }), Number(better));
      if (better) board.scores.set(player, points);
      break;
    }
    case 2:
      assert.equal(await client.zAdd(key, { value: player, score: points }, { condition: 'NX' }),
        Number(old === undefined));
      if (old === undefined) board.scores.set(player, points);
      break;
    case 3:
      assert.equal(await client.zRem(key, player), Number(board.scores.delete(player)));
      break;
    default:
      assert.equal(await client.zIncrBy(key, points, player), (old ?? 0) + points);
      board.scores.set(player, (old ?? 0) + points);
  }
}

async function compare(client, key, board) {
  const best = board.ranked(true);
  const worst = board.ranked();
  const paged = [];
  for (let at = 0; at < best.length; at += 20) {
    paged.push(...rows(await client.zRangeWithScores(key, at, at + 19, { REV: true })));
  }
  assert.deepEqual(paged, best);
  assert.equal(await client.zCard(key), best.length);
  assert.equal(await client.zScore(key, 'nobody'), null);
  const [member, score] = random.pick(best);
  assert.equal(await client.zRank(key, member), board.rank(member));
  assert.deepEqual({ ...await client.zRevRankWithScore(key, member) },
    { rank: board.rank(member, true), score });
  const place = board.rank(member, true);
  const around = await client.zRange(key, Math.max(place - 3, 0), place + 3, { REV: true });
  assert.deepEqual(around, best.slice(Math.max(place - 3, 0), place + 4).map(([name]) => name));
  const low = random.below(40) / 4;
  const high = low + random.below(40) / 4;
  const within = worst.filter(([, points]) => points >= low && points <= high);
  assert.equal(await client.zCount(key, low, high), within.length);
  assert.deepEqual(rows(await client.zRangeWithScores(key, low, high,
    { BY: 'SCORE', LIMIT: { offset: 2, count: 5 } })), within.slice(2, 7));
  const above = best.filter(([, points]) => points > low);
  assert.deepEqual(await client.zRange(key, '+inf', `(${low}`,
    { BY: 'SCORE', REV: true, LIMIT: { offset: 0, count: 10 } }),
  above.slice(0, 10).map(([name]) => name));
  const asked = ['nobody', ...best.slice(0, 5).map(([name]) => name)];
  assert.deepEqual(await client.zmScore(key, asked),
    asked.map((name) => board.scores.get(name) ?? null));
}

async function season(client, key, count, encoding) {
  const players = Array.from({ length: count }, (_, number) => `player:${number}`);
  const board = new Board();
  const start = players.map((value) => ({ value, score: random.below(20) }));
  assert.equal(await client.zAdd(key, start), count);
  for (const { value, score } of start) board.scores.set(value, score);
  for (let round = 0; round < 5; round += 1) {
    for (let game = 0; game < 60; game += 1) await play(client, key, board, players);
    await compare(client, key, board);
  }
  assert.equal(await client.objectEncoding(key), encoding);
  return board;
}

// The seasons added up, the last one counting double; then the end of the list drops out.
async function closing(client, spring, autumn) {
  const total = new Board();
  for (const [factor, board] of [[1, spring], [2, autumn]]) {
    for (const [name, score] of board.scores) {
      total.scores.set(name, (total.scores.get(name) ?? 0) + factor * score);
    }
  }
  assert.equal(await client.zUnionStore('total',
    [{ key: 'spring', weight: 1 }, { key: 'autumn', weight: 2 }]), total.scores.size);
  await compare(client, 'total', total);
  const both = [...spring.scores].filter(([name]) => autumn.scores.has(name));
  assert.equal(await client.zInterCard(['spring', 'autumn']), both.length);
  assert.deepEqual(new Map(rows(await client.zInterWithScores(['spring', 'autumn'],
    { AGGREGATE: 'MAX' }))),
  new Map(both.map(([name, score]) => [name, Math.max(score, autumn.scores.get(name))])));
  const best = total.ranked(true);
  assert.equal(await client.zRangeStore('top', 'total', 0, 9, { REV: true }), 10);
  assert.deepEqual(await client.zRange('top', 0, -1, { REV: true }),
    best.slice(0, 10).map(([name]) => name));
  assert.equal(await client.zRemRangeByRank('total', 0, -101), best.length - 100);
  assert.deepEqual(rows(await client.zPopMaxCount('total', 3)), best.slice(0, 3));
  const { members } = await client.zmPop(['none', 'total'], 'MIN', { COUNT: 2 });
  assert.deepEqual(rows(members), best.slice(98, 100).reverse());
  assert.equal(await client.zCard('total'), 95);
}

// Members that stay are found although others come and go meanwhile.
async function iterate(client, other, size) {
  const wanted = new Map(Array.from({ length: size }, (_, number) => [`stays:${number}`, number / 2]));
  await client.zAdd('scanned', [...wanted].map(([value, score]) => ({ value, score })));
  const found = new Map();
  let step = 0;
  for await (const members of client.zScanIterator('scanned', { COUNT: 50 })) {
    for (const { value, score } of members) found.set(value, score);
    const passing = Array.from({ length: 200 }, (_, number) => `goes:${step}:${number}`);
    await other.zAdd('scanned', passing.map((value) => ({ value, score: 1 })));
    await other.zRem('scanned', passing);
    step += 1;
  }
  for (const [member, score] of wanted) assert.equal(found.get(member), score, member);
  const matching = [];
  for await (const members of client.zScanIterator('scanned', { MATCH: '*:1?' })) {
    matching.push(...members.map(({ value }) => value));
  }
  assert.deepEqual(new Set(matching),
    new Set([...wanted.keys()].filter((member) => /^stays:1.$/.test(member))));
  await client.del('scanned');
}

async function names(client) {
  const words = ['ada', 'alan', 'barbara', 'claude', 'donald', 'edsger', 'grace', 'john'];
  await client.zAdd('names', words.map((value) => ({ value, score: 0 })));
  assert.deepEqual(await client.zRange('names', '[b', '(e', { BY: 'LEX' }),
    ['barbara', 'claude', 'donald']);
  assert.equal(await client.zLexCount('names', '-', '[ada'), 1);
  assert.deepEqual(await client.zRangeByLex('names', '[a', '[a\xff'), ['ada', 'alan']);
  assert.equal(await client.zRemRangeByLex('names', '(edsger', '+'), 2);
  assert.equal(await client.zAdd('names', { value: 'first', score: Infinity }), 1);
  assert.equal(await client.zScore('names', 'first'), Infinity);
  await assert.rejects(client.zIncrBy('names', -Infinity, 'first'), /not a number/);
  assert.deepEqual({ ...await client.zPopMax('names') }, { value: 'first', score: Infinity });
}

await eachProtocol(async ({ client, open, name }) => {
  let spring;
  let autumn;
  await check(`${name}: a small leaderboard`, async () => {
    spring = await season(client, 'spring', 60, 'listpack');
  });
  await check(`${name}: a large leaderboard`, async () => {
    autumn = await season(client, 'autumn', 500, 'skiplist');
  });
  await check(`${name}: seasons added up`, () => closing(client, spring, autumn));
  await check(`${name}: names in order, and infinite scores`, () => names(client));
  await check(`${name}: iteration over members`, async () => {
    const other = await open();
    for (const size of [100, 3000]) await iterate(client, other, size);
  });
});
