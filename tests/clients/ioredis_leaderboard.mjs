// A leaderboard on ioredis: random games on a board that stays small and on one that grows large,
// compared with a table that the program keeps itself. Many scores are equal.
import { eachProtocol, scored } from './_ioredis.mjs';
import { Board, Random } from './_models.mjs';
import { assert, check } from './_tap.mjs';

const random = new Random();
const number = (reply) => (reply === null ? null : Number(reply));

// One random change, made to the model at once and to the server with the pipeline; gives the reply
// that must come. Scores are halves, so that sums are exact; of other fractions, ioredis' reading of
// RESP3 doubles loses the last bits (1.75 becomes 1.7500000000000002).
function play(pipeline, key, board, players) {
  const player = random.pick(players);
  const old = board.scores.get(player);
  const points = random.below(60) / 2;
  switch (random.below(6)) {
    case 0:
      pipeline.zadd(key, points, player);
      board.scores.set(player, points);
      return Number(old === undefined);
    case 1: {
      pipeline.zadd(key, 'LT', 'CH', points, player);
      const lower = old === undefined || points < old;
      if (lower) board.scores.set(player, points);
      return Number(lower);
    }
    case 2:
      pipeline.zadd(key, 'XX', 'INCR', points, player);
      if (old === undefined) return null;
      board.scores.set(player, old + points);
      return old + points;
    case 3:
      pipeline.zrem(key, player);
      return Number(board.scores.delete(player));
    default:
      pipeline.zincrby(key, points, player);
      board.scores.set(player, (old ?? 0) + points);
      return (old ?? 0) + points;
  }
}

async function playMany(client, key, board, players) {
  const pipeline = client.pipeline();
  const wanted = Array.from({ length: 100 }, () => play(pipeline, key, board, players));
  const replies = await pipeline.exec();
  assert.deepEqual(replies, wanted.map((reply, i) =>
    [null, typeof replies[i][1] === 'string' ? String(reply) : reply]));
}

async function compare(client, key, board) {
  const best = board.ranked(true);
  const worst = board.ranked();
  const paged = [];
  for (let at = 0; at < best.length; at += 20) {
    paged.push(...scored(await client.zrevrange(key, at, at + 19, 'WITHSCORES')));
  }
  assert.deepEqual(paged, best);
  assert.equal(await client.zcard(key), best.length);
  assert.equal(await client.zscore(key, 'nobody'), null);
  assert.equal(await client.zrank(key, 'nobody'), null);
  const [member, score] = random.pick(best);
  assert.equal(await client.zrank(key, member), board.rank(member));
  const [place, points] = await client.zrevrank(key, member, 'WITHSCORE');
  assert.deepEqual([place, Number(points)], [board.rank(member, true), score]);
  const low = random.below(40) / 2;
  const high = low + random.below(40) / 2;
  const within = worst.filter(([, value]) => value >= low && value <= high);
  assert.equal(await client.zcount(key, low, high), within.length);
  assert.deepEqual(scored(await client.zrangebyscore(key, low, high, 'WITHSCORES', 'LIMIT', 2, 5)),
    within.slice(2, 7));
  const below = best.filter(([, value]) => value < high);
  assert.deepEqual(scored(await client.zrevrangebyscore(key, `(${high}`, '-inf', 'WITHSCORES')),
    below);
  const asked = ['nobody', ...best.slice(0, 5).map(([name]) => name)];
  assert.deepEqual((await client.zmscore(key, ...asked)).map(number),
    asked.map((name) => board.scores.get(name) ?? null));
}

async function season(client, key, count, encoding) {
  const players = Array.from({ length: count }, (_, place) => `player:${place}`);
  const board = new Board();
  for (const player of players) board.scores.set(player, random.below(20));
  assert.equal(await client.zadd(key, ...[...board.scores].map((row) => row.reverse()).flat()),
    count);
  for (let round = 0; round < 5; round += 1) {
    await playMany(client, key, board, players);
    await compare(client, key, board);
  }
  assert.equal(await client.object('ENCODING', key), encoding);
  return board;
}

// The better of two seasons counts; then the end of the list drops out.
async function closing(client, spring, autumn) {
  const total = new Board();
  for (const board of [spring, autumn]) {
    for (const [name, score] of board.scores) {
      total.scores.set(name, Math.max(total.scores.get(name) ?? 0, score));
    }
  }
  assert.equal(await client.zunionstore('total', 2, 'spring', 'autumn', 'AGGREGATE', 'MAX'),
    total.scores.size);
  await compare(client, 'total', total);
  const both = [...spring.scores].filter(([name]) => autumn.scores.has(name));
  assert.equal(await client.zintercard(2, 'spring', 'autumn'), both.length);
  assert.equal(await client.zinterstore('both', 2, 'spring', 'autumn', 'WEIGHTS', 2, 0),
    both.length);
  assert.deepEqual(new Map(scored(await client.zrange('both', 0, -1, 'WITHSCORES'))),
    new Map(both.map(([name, score]) => [name, 2 * score])));
  const only = [...autumn.scores].filter(([name]) => !spring.scores.has(name));
  assert.deepEqual(new Map(scored(await client.zdiff(2, 'autumn', 'spring', 'WITHSCORES'))),
    new Map(only));
  const best = total.ranked(true);
  assert.equal(await client.zrangestore('top', 'total', 0, 9, 'REV'), 10);
  assert.deepEqual(scored(await client.zrange('top', 0, -1, 'REV', 'WITHSCORES')),
    best.slice(0, 10));
  assert.equal(await client.zremrangebyrank('total', 0, -101), best.length - 100);
  assert.deepEqual(scored(await client.zpopmax('total', 3)), best.slice(0, 3));
  const [, members] = await client.zmpop(2, 'none', 'total', 'MIN', 'COUNT', 2);
  assert.deepEqual(scored(members), best.slice(98, 100).reverse());
  const limit = best[50][1];
  const left = best.slice(3, 98).filter(([, score]) => score > limit).length;
  assert.equal(await client.zremrangebyscore('total', '-inf', limit), 95 - left);
  assert.equal(await client.zcard('total'), left);
}

// Members that stay are found although others come and go meanwhile.
async function iterate(client, other, size) {
  const wanted = new Map(Array.from({ length: size }, (_, place) => [`stays:${place}`, place / 2]));
  await client.zadd('scanned', ...[...wanted].map(([member, score]) => [score, member]).flat());
  const found = new Map();
  let step = 0;
  for await (const reply of client.zscanStream('scanned', { count: 50 })) {
    for (const [member, score] of scored(reply)) found.set(member, score);
    const passing = Array.from({ length: 200 }, (_, place) => `goes:${step}:${place}`);
    await other.zadd('scanned', ...passing.flatMap((member) => [1, member]));
    await other.zrem('scanned', ...passing);
    step += 1;
  }
  for (const [member, score] of wanted) assert.equal(found.get(member), score, member);
  const matching = new Set();
  for await (const reply of client.zscanStream('scanned', { match: '*:1?' })) {
    for (const [member] of scored(reply)) matching.add(member);
  }
  assert.deepEqual(matching,
    new Set([...wanted.keys()].filter((member) => /^stays:1.$/.test(member))));
  await client.del('scanned');
}

async function names(client) {
  const words = ['ada', 'alan', 'barbara', 'claude', 'donald', 'edsger', 'grace', 'john'];
  await client.zadd('names', ...words.flatMap((word) => [0, word]));
  assert.deepEqual(await client.zrange('names', '(e', '[b', 'BYLEX', 'REV'),
    ['donald', 'claude', 'barbara']);
  assert.equal(await client.zlexcount('names', '-', '[ada'), 1);
  assert.deepEqual(await client.zrevrangebylex('names', '[c', '-', 'LIMIT', 1, 2), ['alan', 'ada']);
  assert.equal(await client.zremrangebylex('names', '(edsger', '+'), 2);
  assert.equal(await client.zadd('names', '-inf', 'last'), 1);
  assert.ok([-Infinity, '-inf'].includes(await client.zscore('names', 'last')));
  await assert.rejects(client.zincrby('names', '+inf', 'last'), /not a number/);
  await assert.rejects(client.zadd('names', 'nan', 'ada'), /not a valid float/);
  const picked = await client.zrandmember('names', -50);
  assert.equal(picked.length, 50);
  assert.ok(picked.every((name) => name === 'last' || words.includes(name)));
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
  await check(`${name}: seasons put together`, () => closing(client, spring, autumn));
  await check(`${name}: names in order, and infinite scores`, () => names(client));
  await check(`${name}: iteration over members`, async () => {
    const other = await open();
    for (const size of [100, 3000]) await iterate(client, other, size);
  });
});
