// A cache by hand on ioredis: reads are tracked on one connection, and what they must forget is told on
// another one, that has subscribed. All modes of tracking.
import { connect, eachProtocol } from './_ioredis.mjs';
import { Random } from './_models.mjs';
import { assert, check, until } from './_tap.mjs';

const random = new Random();

// A reader with a Map that forgets what the other connection is told. `told` are all keys, in order.
async function cachingReader(mode, ...options) {
  const reader = connect(mode);
  const ear = connect('RESP2');
  const cache = new Map();
  const told = [];
  ear.on('messageBuffer', (channel, keys) => {
    if (keys === null) cache.clear();
    for (const key of keys ?? ['(all)']) {
      told.push(String(key));
      cache.delete(String(key));
    }
  });
  const id = await ear.client('ID');
  await ear.subscribe('__redis__:invalidate');
  assert.equal(await reader.client('TRACKING', 'ON', 'REDIRECT', id, ...options), 'OK');
  assert.equal(await reader.client('GETREDIR'), id);
  return {
    reader, ear, cache, told,
    async get(key) {
      if (!cache.has(key)) {
        const value = await reader.get(key);
        cache.set(key, value);
      }
      return cache.get(key);
    },
    // What was published before has been heard when this has: one order on one connection.
    async hear() {
      await ear.ping();
    },
    close() {
      reader.disconnect();
      ear.disconnect();
    },
  };
}

async function byKeys({ client, mode }) {
  const one = await cachingReader(mode);
  const texts = new Map();
  for (let step = 0; step < 1500; step += 1) {
    const key = `k:${random.below(40)}`;
    if (random.below(3) === 0) {
      await client.set(key, `v${step}`);
      texts.set(key, `v${step}`);
      await one.hear();
    } else {
      assert.equal(await one.get(key), texts.get(key) ?? null);
    }
  }
  one.told.length = 0;
  one.cache.clear();
  await client.mset('a', 1, 'b', 2, 'c', 3);
  await one.get('a');
  await one.get('b');
  await client.mset('a', 4, 'b', 5, 'c', 6);
  await client.mset('a', 7, 'b', 8, 'c', 9);
  await one.hear();
  assert.deepEqual(one.told.sort(), ['a', 'b']); // Once each, and nothing of what was not read.
  await one.get('a');
  await client.flushall();
  await one.hear();
  assert.equal(one.told.at(-1), '(all)');
  assert.equal(one.cache.size, 0);
  one.close();
}

async function byPrefixes({ client, mode }) {
  const one = await cachingReader(mode, 'BCAST', 'PREFIX', 'user:', 'PREFIX', 'page:');
  await client.mset('user:1', 1, 'page:1', 1, 'other:1', 1);
  await client.multi().set('user:2', 1).del('page:1', 'other:1').exec();
  await client.eval("redis.call('SET', 'user:3', 1) return redis.call('DEL', 'user:1')", 0);
  await one.hear();
  assert.deepEqual([...new Set(one.told)].sort(), ['page:1', 'user:1', 'user:2', 'user:3']);
  assert.deepEqual(await client.keys('other:*'), []);
  one.close();
}

async function onlyWhenAsked({ client, mode }) {
  const one = await cachingReader(mode, 'OPTIN');
  await client.mset('asked', 1, 'silent', 1);
  await one.reader.pipeline().client('CACHING', 'YES').get('asked').get('silent').exec();
  await client.mset('asked', 2, 'silent', 2);
  await one.hear();
  assert.deepEqual(one.told, ['asked']);
  one.close();
  const two = await cachingReader(mode, 'OPTOUT');
  await two.reader.pipeline().client('CACHING', 'NO').get('silent').get('asked').exec();
  await client.mset('asked', 3, 'silent', 3);
  await two.hear();
  assert.deepEqual(two.told, ['asked']);
  two.close();
}

async function ownChanges({ client, mode }) {
  const quiet = await cachingReader(mode, 'NOLOOP');
  await quiet.get('own');
  await quiet.reader.set('own', 1);
  await quiet.hear();
  assert.deepEqual(quiet.told, []);
  await quiet.reader.get('own');
  await client.set('own', 2);
  await quiet.hear();
  assert.deepEqual(quiet.told, ['own']);
  quiet.close();
  const loud = await cachingReader(mode);
  await loud.get('own');
  await loud.reader.set('own', 3);
  await loud.hear();
  assert.deepEqual(loud.told, ['own']);
  loud.close();
}

async function lostEar({ client, mode }) {
  const one = await cachingReader(mode);
  await one.get('k');
  one.ear.disconnect();
  const flags = async () => {
    const info = await one.reader.client('TRACKINGINFO');
    return [Array.isArray(info) ? info[1] : info.flags ?? info.get('flags')].flat();
  };
  await until(async () => {
    await client.set('k', String(random.below(1000)));
    await one.reader.get('k');
    return (await flags()).map(String).includes('broken_redirect');
  });
  assert.equal(await one.reader.client('TRACKING', 'OFF'), 'OK');
  one.close();
}

await eachProtocol(async (world) => {
  await check(`${world.name}: keys that were read`, () => byKeys(world));
  await check(`${world.name}: prefixes`, () => byPrefixes(world));
  await check(`${world.name}: only when asked`, () => onlyWhenAsked(world));
  await check(`${world.name}: own changes`, () => ownChanges(world));
  await check(`${world.name}: the other connection is lost`, () => lostEar(world));
});
