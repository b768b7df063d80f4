// ioredis as applications use it; it opens its connections in RESP3 by itself.
import Redis from 'ioredis';
import { assert, check, finish, host, port, sleep } from './_tap.mjs';

const options = { host, port, retryStrategy: null, maxRetriesPerRequest: 1 };
const client = new Redis(options);
const other = new Redis(options);
for (const one of [client, other]) one.on('error', (problem) => console.log(`# ${problem}`));
await client.flushall();

await check('the connection speaks RESP3', async () => {
  assert.match(await client.client('INFO'), / resp=3\b/);
});

await check('sessions with a time to live', async () => {
  const pipeline = client.pipeline();
  for (let number = 0; number < 300; number += 1) {
    pipeline.set(`session:${number}`, `data ${number}`, 'EX', 60);
  }
  const replies = await pipeline.exec();
  assert.equal(replies.length, 300);
  assert.ok(replies.every(([problem, reply]) => problem === null && reply === 'OK'));
  assert.equal(await client.get('session:77'), 'data 77');
  assert.ok((await client.ttl('session:77')) > 50);
  assert.equal(await client.expire('session:77', 10, 'GT'), 0);
  assert.equal(await client.persist('session:77'), 1);
  assert.equal(await client.unlink('session:77', 'session:78'), 2);
  assert.equal(await client.get('session:77'), null);
});

await check('counters from two connections', async () => {
  const replies = await Promise.all(Array.from({ length: 400 },
    (_, number) => (number % 2 ? client : other).incr('hits')));
  assert.equal(new Set(replies).size, 400);
  assert.equal(await client.get('hits'), '400');
});

await check('a pipeline keeps order and reports errors one by one', async () => {
  const replies = await client.pipeline().set('a', 'x').incr('a').get('a').del('a').exec();
  assert.deepEqual(replies.map(([problem]) => problem?.message ?? null),
    [null, 'ERR value is not an integer or out of range', null, null]);
  assert.deepEqual(replies.map(([, reply]) => reply)[2], 'x');
});

await check('transactions', async () => {
  const replies = await client.multi().mset('m1', '1', 'm2', '2').incrby('m1', 9).mget('m1', 'm2')
    .exec();
  assert.deepEqual(replies, [[null, 'OK'], [null, 10], [null, ['10', '2']]]);
  await assert.rejects(client.multi().set('only-key').exec(), /EXECABORT/);
  await client.watch('m1');
  await other.set('m1', 'changed');
  assert.equal(await client.multi().set('m1', 'mine').exec(), null);
  assert.equal(await client.get('m1'), 'changed');
});

await check('a lock with SET NX PX and a safe release', async () => {
  assert.equal(await client.set('lock', 'me', 'PX', 5000, 'NX'), 'OK');
  assert.equal(await other.set('lock', 'you', 'PX', 5000, 'NX'), null);
  await client.watch('lock');
  if ((await client.get('lock')) === 'me') {
    assert.deepEqual(await client.multi().del('lock').exec(), [[null, 1]]);
  }
  assert.equal(await other.set('lock', 'you', 'PX', 5000, 'NX'), 'OK');
});

await check('iteration with a stream', async () => {
  const pairs = [];
  for (let number = 0; number < 5000; number += 1) pairs.push(`it:${number}`, 'v');
  await client.mset(pairs);
  const found = new Set();
  for await (const keys of client.scanStream({ match: 'it:*', count: 200 })) {
    for (const key of keys) found.add(key);
  }
  assert.equal(found.size, 5000);
});

await check('large binary values', async () => {
  for (const size of [16384, 65536, 3 << 20]) {
    const value = Buffer.alloc(size, 'a binary\r\npattern\0');
    assert.equal(await client.set('large', value), 'OK');
    assert.ok(value.equals(await client.getBuffer('large')));
    assert.ok(value.subarray(10, 20000).equals(await client.getrangeBuffer('large', 10, 19999)
      .then((got) => got.subarray(0, Math.min(size, 20000) - 10))) || size < 20000);
  }
});

await check('expiry', async () => {
  await client.set('soon', '1', 'PX', 40);
  await client.psetex('soon2', 40, '1');
  await sleep(120);
  assert.deepEqual(await client.mget('soon', 'soon2'), [null, null]);
  assert.equal(await client.pttl('soon'), -2);
});

await check('rename, copy and move between databases', async () => {
  await client.set('from', 'v', 'EX', 100);
  await client.rename('from', 'to');
  assert.equal(await client.copy('to', 'copy'), 1);
  assert.ok((await client.ttl('copy')) > 90);
  assert.equal(await client.move('copy', 7), 1);
  const seventh = new Redis({ ...options, db: 7 });
  assert.equal(await seventh.get('copy'), 'v');
  await seventh.flushdb();
  await seventh.quit();
});

await check('INFO is what its parser expects', async () => {
  assert.match(await client.info(), /redis_version:8[^]*used_memory:\d+/);
});

await check('automatic pipelining', async () => {
  const automatic = new Redis({ ...options, enableAutoPipelining: true });
  const replies = await Promise.all(Array.from({ length: 500 },
    (_, number) => automatic.set(`auto:${number}`, number).then(() => automatic.get(`auto:${number}`))));
  assert.deepEqual(replies, Array.from({ length: 500 }, (_, number) => String(number)));
  await automatic.quit();
});

await check('the server asked for RESP2', async () => {
  const two = new Redis({ ...options, protocol: 2, username: undefined });
  assert.equal(await two.ping(), 'PONG');
  assert.deepEqual(await two.config('GET', 'databases').then((reply) => [reply].flat().length > 0), true);
  await two.quit();
});

await client.flushall();
await client.quit();
await other.quit();
finish();
