// The cache that node-redis keeps beside a connection. Who has been told that a key was changed reads the
// new value behind the next reply of its own connection: the invalidation comes before that.
import { BasicClientSideCache } from 'redis';
import { connect } from './_node_redis.mjs';
import { Random } from './_models.mjs';
import { assert, check, checkDataset, datasetBytes, finish, until } from './_tap.mjs';

const random = new Random();
const open = [];

async function cached(config = {}) {
  const cache = new BasicClientSideCache(config);
  const client = await connect(3, { clientSideCache: cache });
  open.push(client);
  return { client, cache };
}

async function hitsAndMisses(writer) {
  const { client, cache } = await cached();
  for (let i = 0; i < 200; i += 1) await writer.set(`page:${i}`, `text ${i}`);
  for (let round = 0; round < 3; round += 1) {
    for (let i = 0; i < 200; i += 1) assert.equal(await client.get(`page:${i}`), `text ${i}`);
  }
  assert.equal(cache.stats().missCount, 200);
  assert.equal(cache.stats().hitCount, 400);
  await writer.set('page:7', 'new');
  await client.ping();
  assert.equal(cache.size(), 199);
  assert.equal(await client.get('page:7'), 'new');
  assert.equal(cache.stats().missCount, 201);
  await client.set('page:8', 'own');
  assert.equal(await client.get('page:8'), 'own');
  await writer.del('page:9');
  await client.ping();
  assert.equal(await client.get('page:9'), null);
}

// Random changes of keys of all types by another connection; a read is never older than the last one
// that was acknowledged before.
async function neverStale(writer) {
  const { client, cache } = await cached();
  const texts = new Map();
  const scores = new Map();
  for (let step = 0; step < 2000; step += 1) {
    const key = `k:${random.below(30)}`;
    switch (random.below(6)) {
      case 0:
        await writer.set(key, `v${step}`);
        texts.set(key, `v${step}`);
        break;
      case 1:
        await writer.del(key);
        texts.delete(key);
        break;
      case 2:
        await writer.zAdd('board', { score: step, value: key });
        scores.set(key, step);
        break;
      case 3:
        await client.ping();
        assert.equal(await client.zScore('board', key), scores.get(key) ?? null);
        break;
      default:
        await client.ping();
        assert.equal(await client.get(key), texts.get(key) ?? null);
    }
  }
  assert.ok(cache.stats().hitCount > 50, `${cache.stats().hitCount} hits`);
}

// What changes keys in other ways: a script, a transaction, a rename, the time, all at once.
async function everyWay(writer) {
  const { client, cache } = await cached();
  const changes = [
    ['by a script', () => writer.eval("return redis.call('SET', KEYS[1], 'x')",
      { keys: ['way'] }), 'x'],
    ['by a script that hides it', () => writer.eval("return redis.call('SET', 'way', 'y')"), 'y'],
    ['in a transaction', () => writer.multi().append('way', '1').append('way', '2').exec(), 'y12'],
    ['by its name', () => writer.multi().set('other', 'z').rename('other', 'way').exec(), 'z'],
    ['by FLUSHDB', () => writer.flushDb(), null],
    ['by COPY', () => writer.multi().set('from', 'c').copy('from', 'way').exec(), 'c'],
    ['by FLUSHALL', () => writer.flushAll(), null],
  ];
  for (const [title, change, wanted] of changes) {
    await client.get('way');
    assert.equal(cache.size(), 1, title);
    await change();
    await client.ping();
    assert.equal(cache.size(), 0, title);
    assert.equal(await client.get('way'), wanted, title);
  }
  await writer.set('short', 'lived', { expiration: { type: 'PX', value: 40 } });
  await client.get('short');
  await until(async () => (await client.get('short')) === null);
}

// Many readers of the same keys, of which each is told once; those that are gone are told nothing.
async function manyReaders(writer) {
  const readers = [];
  for (let i = 0; i < 20; i += 1) readers.push(await cached());
  await writer.set('shared', '0');
  for (let round = 1; round <= 20; round += 1) {
    await Promise.all(readers.map(({ client }) => client.get('shared')));
    if (round === 10) for (const { client } of readers.splice(0, 10)) client.destroy();
    await writer.set('shared', String(round));
    await Promise.all(readers.map(({ client }) => client.ping()));
    const seen = await Promise.all(readers.map(({ client }) => client.get('shared')));
    assert.deepEqual(new Set(seen), new Set([String(round)]));
  }
}

async function boundedCache(writer) {
  const { client, cache } = await cached({ maxEntries: 10, evictPolicy: 'LRU' });
  for (let i = 0; i < 100; i += 1) {
    await writer.set(`many:${i}`, String(i));
    await client.get(`many:${i}`);
  }
  assert.equal(cache.size(), 10);
  for (let i = 0; i < 100; i += 1) await writer.set(`many:${i}`, 'changed');
  await client.ping();
  assert.equal(cache.size(), 0);
}

const writer = await connect(3);
await writer.flushAll('SYNC');
const used = datasetBytes(await writer.info('memory'));
await check('hits and misses', () => hitsAndMisses(writer));
await check('never stale', () => neverStale(writer));
await check('every way to change a key', () => everyWay(writer));
await check('many readers', () => manyReaders(writer));
await check('a cache with an end', () => boundedCache(writer));
for (const client of open) if (client.isOpen) client.destroy();
await writer.flushAll('SYNC');
await checkDataset('no byte is left', () => writer.info('memory'), used);
await writer.close();
finish();
