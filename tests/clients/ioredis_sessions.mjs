// Sessions as hashes on ioredis: fields with a time to live of their own, sliding expiry, changes under
// WATCH, counters, iteration. What each session must hold is kept beside it.
import { eachProtocol, pairs } from './_ioredis.mjs';
import { Random } from './_models.mjs';
import { assert, check, sleep, until } from './_tap.mjs';

const random = new Random();

// One random change, made to the model at once and to the server with the pipeline; gives the reply
// that must come.
function use(pipeline, key, session) {
  const field = random.below(3) ? `seen:${random.below(150)}` : random.pick(['user', 'locale']);
  const old = session.get(field);
  const value = `value ${random.below(1000)}`;
  switch (random.below(6)) {
    case 0:
      pipeline.hincrby(key, 'visits', 3);
      session.set('visits', String(Number(session.get('visits')) + 3));
      return Number(session.get('visits'));
    case 1:
      pipeline.hdel(key, field, 'none');
      return Number(session.delete(field));
    case 2:
      pipeline.hsetnx(key, field, value);
      if (old === undefined) session.set(field, value);
      return Number(old === undefined);
    case 3:
      pipeline.hmget(key, field, 'visits', 'none');
      return [old ?? null, session.get('visits'), null];
    case 4:
      pipeline.hexists(key, field);
      return Number(old !== undefined);
    default:
      pipeline.hset(key, field, value, 'last', value);
      session.set(field, value).set('last', value);
      return Number(old === undefined);
  }
}

async function manySessions(client) {
  const sessions = Array.from({ length: 100 }, (_, id) => new Map(
    [['id', String(id)], ['visits', String(random.below(100))], ['last', '']]));
  const start = client.pipeline();
  for (const [id, session] of sessions.entries()) {
    start.hset(`session:${id}`, session).expire(`session:${id}`, 600);
  }
  await start.exec();
  for (let round = 0; round < 10; round += 1) {
    const pipeline = client.pipeline();
    const wanted = [];
    for (let step = 0; step < 300; step += 1) {
      const id = step % 3 ? 0 : random.below(100); // The first session becomes large.
      const session = sessions[id];
      wanted.push([null, use(pipeline, `session:${id}`, session)]);
      if (wanted.length % 50 === 0) {
        pipeline.hgetall(`session:${id}`);
        wanted.push([null, Object.fromEntries(session)]);
      }
    }
    assert.deepEqual(await pipeline.exec(), wanted);
  }
  for (const [id, session] of sessions.entries()) {
    const key = `session:${id}`;
    assert.deepEqual(await client.hgetall(key), Object.fromEntries(session));
    assert.equal(await client.hlen(key), session.size);
  }
  const [session] = sessions;
  assert.deepEqual((await client.hkeys('session:0')).sort(), [...session.keys()].sort());
  assert.deepEqual((await client.hvals('session:0')).sort(), [...session.values()].sort());
  for (const [field, value] of pairs(await client.hrandfield('session:0', -20, 'WITHVALUES'))) {
    assert.equal(value, session.get(field));
  }
}

// `filler` fields make the hash large.
async function fieldExpiry(client, filler) {
  const key = `login:${filler}`;
  const fields = Object.fromEntries(Array.from({ length: filler }, (_, i) => [`filler:${i}`, 'x']));
  await client.hset(key, { ...fields, user: 'ada', theme: 'dark' });
  assert.equal(await client.hsetex(key, 'FNX', 'PX', 150, 'FIELDS', 2,
    'token', 'secret', 'code', '1234'), 1);
  assert.equal(await client.hsetex(key, 'FXX', 'KEEPTTL', 'FIELDS', 1, 'token', 'new'), 1);
  assert.equal(await client.hsetex(key, 'FXX', 'EX', 9, 'FIELDS', 1, 'absent', 'x'), 0);
  const [token, none, absent] = await client.hpttl(key, 'FIELDS', 3, 'token', 'user', 'absent');
  assert.ok(token > 0 && token <= 150);
  assert.deepEqual([none, absent], [-1, -2]);
  assert.deepEqual(await client.hexpire(key, 100, 'FIELDS', 2, 'user', 'absent'), [1, -2]);
  assert.deepEqual(await client.hpexpire(key, 50000, 'GT', 'FIELDS', 2, 'user', 'theme'), [0, 0]);
  assert.deepEqual(await client.hgetex(key, 'EX', 77, 'FIELDS', 2, 'theme', 'absent'),
    ['dark', null]);
  const [user, theme] = await client.httl(key, 'FIELDS', 2, 'user', 'theme');
  assert.ok(user > 90 && user <= 100 && theme > 70 && theme <= 77);
  assert.deepEqual(await client.hpersist(key, 'FIELDS', 2, 'theme', 'absent'), [1, -2]);
  const inAnHour = Math.floor(Date.now() / 1000) + 3600;
  assert.deepEqual(await client.hexpireat(key, inAnHour, 'NX', 'FIELDS', 1, 'theme'), [1]);
  assert.deepEqual(await client.hexpiretime(key, 'FIELDS', 1, 'theme'), [inAnHour]);
  assert.deepEqual(await client.hpexpiretime(key, 'FIELDS', 1, 'theme'), [inAnHour * 1000]);
  await sleep(180);
  assert.deepEqual(await client.hmget(key, 'token', 'code', 'user'), [null, null, 'ada']);
  assert.deepEqual(await client.hgetall(key), { ...fields, user: 'ada', theme: 'dark' });
  assert.deepEqual(await client.hgetdel(key, 'FIELDS', 2, 'user', 'absent'), ['ada', null]);
  assert.deepEqual(await client.hpexpireat(key, 1, 'FIELDS', 1, 'theme'), [2]);
  assert.equal(await client.hlen(key), filler);
  assert.equal(await client.exists(key), Number(filler > 0));
}

async function slidingExpiry(client, other) {
  await client.hset('sliding', 'cart', '[]', 'version', 1);
  await client.pexpire('sliding', 200);
  for (let request = 1; request <= 6; request += 1) {
    await sleep(50);
    const ttl = request === 6 ? 60000 : 200;
    const [[, value]] = await client.multi().hget('sliding', 'cart').pexpire('sliding', ttl).exec();
    if (value === null) return; // The machine slept for longer than the session lives.
  }
  await client.watch('sliding');
  await other.hincrby('sliding', 'version', 1);
  assert.equal(await client.multi().hset('sliding', 'cart', '[1]').exec(), null);
  assert.deepEqual(await client.hgetall('sliding'), { cart: '[]', version: '2' });
  await client.pexpire('sliding', 20);
  await until(async () => (await client.hgetall('sliding')).version === undefined);
  assert.equal(await client.exists('sliding'), 0);
}

async function numbers(client) {
  assert.equal(Number(await client.hincrbyfloat('sums', 'price', 10.25)), 10.25);
  assert.equal(await client.hincrbyfloat('sums', 'price', '-0.5'), '9.75');
  const edge = '9223372036854775807';
  await client.hset('sums', 'n', edge, 'word', 'x');
  await assert.rejects(client.hincrby('sums', 'n', 1), /would overflow/);
  assert.equal(await client.hget('sums', 'n'), edge);
  await assert.rejects(client.hincrby('sums', 'word', 1), /hash value is not an integer/);
  const binary = Buffer.from([0, 255, 13, 10, 128]);
  await client.hset('sums', 'bytes', binary);
  assert.ok(binary.equals(await client.hgetBuffer('sums', 'bytes')));
  await client.del('sums');
}

// Fields that stay are found although others come and go meanwhile.
async function iterate(client, other, size) {
  const wanted = new Map(Array.from({ length: size }, (_, i) => [`stays:${i}`, `value ${i}`]));
  await client.hset('scanned', wanted);
  const found = new Map();
  let step = 0;
  for await (const reply of client.hscanStream('scanned', { count: 50 })) {
    for (const [field, value] of pairs(reply)) found.set(field, value);
    const passing = Array.from({ length: 200 }, (_, i) => `goes:${step}:${i}`);
    await other.hset('scanned', ...passing.flatMap((field) => [field, 'x']));
    await other.hdel('scanned', ...passing);
    step += 1;
  }
  for (const [field, value] of wanted) assert.equal(found.get(field), value, field);
  const fields = new Set();
  for await (const some of client.hscanStream('scanned', { noValues: true, match: 'stays:1*' })) {
    for (const field of some) fields.add(field);
  }
  assert.deepEqual(fields, new Set([...wanted.keys()].filter((field) => /:1/.test(field))));
  await client.del('scanned');
}

await eachProtocol(async ({ client, open, name }) => {
  const other = await open();
  await check(`${name}: many sessions`, () => manySessions(client));
  await check(`${name}: fields that expire, few`, () => fieldExpiry(client, 0));
  await check(`${name}: fields that expire, many`, () => fieldExpiry(client, 700));
  await check(`${name}: sliding expiry`, () => slidingExpiry(client, other));
  await check(`${name}: numbers and bytes in fields`, () => numbers(client));
  await check(`${name}: iteration over fields`, async () => {
    for (const size of [100, 3000]) await iterate(client, other, size);
  });
});
