// node-redis as applications use it, once over RESP2 and once over RESP3.
import { RESP_TYPES } from 'redis';
import { connect } from './_node_redis.mjs';
import { assert, check, finish, sleep } from './_tap.mjs';

async function sessions(client) {
  const users = Array.from({ length: 200 }, (_, number) => `user-${number}`);
  await Promise.all(users.map((user) =>
    client.set(`session:${user}`, JSON.stringify({ user, cart: [] }),
      { expiration: { type: 'EX', value: 60 } })));
  const texts = await client.mGet(users.map((user) => `session:${user}`));
  assert.deepEqual(texts.map((text) => JSON.parse(text).user), users);
  await client.set('session:user-1', '{"user":"user-1","cart":[7]}', { expiration: 'KEEPTTL' });
  const ttl = await client.ttl('session:user-1');
  assert.ok(ttl > 0 && ttl <= 60);
  assert.equal(await client.set('session:user-1', 'x', { condition: 'NX' }), null);
  assert.equal(await client.getEx('session:user-2', { type: 'PERSIST' }),
    JSON.stringify({ user: 'user-2', cart: [] }));
  assert.equal(await client.ttl('session:user-2'), -1);
  assert.equal(await client.getDel('session:user-3'), JSON.stringify({ user: 'user-3', cart: [] }));
  assert.equal(await client.exists('session:user-3'), 0);
}

async function counters(client) {
  const replies = await Promise.all(Array.from({ length: 1000 }, () => client.incr('hits')));
  assert.deepEqual(replies, Array.from({ length: 1000 }, (_, number) => number + 1));
  assert.equal(await client.incrBy('hits', 500), 1500);
  assert.equal(await client.decrBy('hits', 1500), 0);
  assert.equal(Number(await client.incrByFloat('price', 10.25)), 10.25);
  assert.equal(String(await client.incrByFloat('price', 0.5)), '10.75');
}

async function transactions(client) {
  const replies = await client.multi().set('a', '1').incr('a').get('a').mGet(['a', 'none']).exec();
  assert.deepEqual(replies, ['OK', 2, '2', ['2', null]]);
  const many = client.multi();
  for (let number = 0; number < 500; number += 1) many.incr('many');
  assert.equal((await many.exec()).at(-1), 500);
  const pipelined = client.multi();
  for (let number = 0; number < 500; number += 1) pipelined.set(`p:${number}`, String(number));
  assert.equal((await pipelined.execAsPipeline()).length, 500);
}

async function optimisticLock(client, other) {
  await client.set('stock', '5');
  await client.watch('stock');
  await other.decr('stock');
  await assert.rejects(client.multi().set('stock', '99').exec(), { name: 'Error' });
  await client.watch('stock');
  const left = Number(await client.get('stock'));
  assert.deepEqual(await client.multi().set('stock', String(left - 1)).exec(), ['OK']);
  assert.equal(await client.get('stock'), '3');
}

async function iteration(client) {
  const wanted = new Set();
  const writes = [];
  for (let number = 0; number < 3000; number += 1) {
    wanted.add(`scan:${number}`);
    writes.push(client.set(`scan:${number}`, 'x'));
  }
  await Promise.all(writes);
  const found = new Set();
  for await (const keys of client.scanIterator({ MATCH: 'scan:*', COUNT: 100 })) {
    for (const key of [keys].flat()) found.add(key);
  }
  assert.deepEqual(found, wanted);
}

async function largeValues(client) {
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  for (const size of [16383, 16384, 100000, 5 << 20]) {
    const value = Buffer.alloc(size);
    for (let place = 0; place < size; place += 1) value[place] = (place * 31) & 0xff;
    await client.set('large', value);
    assert.ok(value.equals(await binary.get('large')), `size ${size}`);
    assert.equal(await client.strLen('large'), size);
  }
  assert.equal(await client.append('large', 'end'), (5 << 20) + 3);
  assert.equal(await client.getRange('large', -3, -1), 'end');
}

async function expiry(client) {
  await client.set('soon', '1', { expiration: { type: 'PX', value: 50 } });
  await client.set('later', '1');
  assert.equal(await client.pExpire('later', 60000), 1);
  assert.equal(await client.pExpire('later', 1000, 'GT'), 0);
  await sleep(120);
  assert.equal(await client.get('soon'), null);
  assert.ok((await client.pTTL('later')) > 50000);
}

async function bits(client) {
  for (const day of [1, 5, 9]) await client.setBit('visits', day, 1);
  assert.equal(await client.bitCount('visits'), 3);
  assert.equal(await client.getBit('visits', 5), 1);
  assert.equal(await client.bitPos('visits', 1), 1);
  await client.setBit('others', 5, 1);
  await client.bitOp('AND', 'both', ['visits', 'others']);
  assert.equal(await client.bitCount('both'), 1);
  assert.deepEqual(await client.bitField('fields', [
    { operation: 'SET', encoding: 'u8', offset: '#0', value: 200 },
    { operation: 'INCRBY', encoding: 'u8', offset: '#0', increment: 10 },
  ]), [0, 210]);
}

async function databases(client, RESP) {
  const second = await connect(RESP, { database: 3 });
  await second.set('only here', '1');
  assert.equal(await client.exists('only here'), 0);
  assert.equal(await second.dbSize(), 1);
  await second.flushDb();
  await second.close();
}

async function errors(client) {
  await client.set('text', 'abc');
  await assert.rejects(client.incr('text'), /value is not an integer or out of range/);
  await assert.rejects(client.sendCommand(['NOSUCH', 'a']), /unknown command/);
  assert.equal(await client.ping(), 'PONG');
}

async function introspection(client) {
  await client.clientSetName('node-test');
  assert.equal(await client.clientGetName(), 'node-test');
  assert.match(await client.info('server'), /redis_version:8/);
  const options = await client.configGet('maxclients');
  assert.equal(options.maxclients, '10000');
  assert.ok((await client.commandCount()) > 80);
  const info = await client.clientInfo();
  assert.equal(info.name, 'node-test');
}

async function hotKeys(client, other) {
  assert.equal(await client.hotkeysGet(), null);
  assert.equal(await client.hotkeysStart({
    METRICS: { count: 2, CPU: true, NET: true }, COUNT: 5, DURATION: 60, SAMPLE: 1,
  }), 'OK');
  await Promise.all(Array.from({ length: 100 }, (_, number) => other.set(`hot:${number % 3}`, 'x')));
  assert.equal(await client.hotkeysStop(), 'OK');
  const found = await client.hotkeysGet();
  assert.equal(found.trackingActive, 0);
  assert.equal(found.sampleRatio, 1);
  assert.deepEqual(found.selectedSlots, [{ start: 0, end: 16383 }]);
  // "SET hot:0 x" and "+OK" are 36 bytes.
  assert.deepEqual(found.byNetBytes, [34, 33, 33].map((calls, number) =>
    ({ key: `hot:${number}`, value: 36 * calls })));
  assert.equal(found.byCpuTimeUs.length, 3);
  assert.equal(found.totalNetBytes, 3600);
  assert.equal(await client.hotkeysReset(), 'OK');
  assert.equal(await client.hotkeysGet(), null);
}

for (const RESP of [2, 3]) {
  const client = await connect(RESP, { name: 'main' });
  const other = await connect(RESP);
  await client.flushAll();
  const name = `RESP${RESP}`;
  await check(`${name}: sessions with a time to live`, () => sessions(client));
  await check(`${name}: counters from many callers`, () => counters(client));
  await check(`${name}: transactions and pipelines`, () => transactions(client));
  await check(`${name}: optimistic lock with WATCH`, () => optimisticLock(client, other));
  await check(`${name}: iteration over all keys`, () => iteration(client));
  await check(`${name}: large binary values`, () => largeValues(client));
  await check(`${name}: expiry`, () => expiry(client));
  await check(`${name}: bitmaps`, () => bits(client));
  await check(`${name}: databases`, () => databases(client, RESP));
  await check(`${name}: errors leave the connection usable`, () => errors(client));
  await check(`${name}: introspection`, () => introspection(client));
  await check(`${name}: hot keys`, () => hotKeys(client, other));
  await client.flushAll();
  await client.close();
  await other.close();
}
finish();
