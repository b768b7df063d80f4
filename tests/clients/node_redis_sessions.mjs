// Sessions as hashes on node-redis: fields with a time to live of their own, sliding expiry, changes
// under WATCH, counters, iteration. What each session must hold is kept beside it.
import { eachProtocol } from './_node_redis.mjs';
import { Random } from './_models.mjs';
import { assert, check, sleep, until } from './_tap.mjs';

const random = new Random();

function newSession(id) {
  return { id: String(id), user: `user ${random.below(1000)}`, locale: random.pick(['de', 'en', 'ml']),
    visits: String(random.below(100)), cart: JSON.stringify([random.below(9), random.below(9)]) };
}

async function manySessions(client) {
  const sessions = new Map(Array.from({ length: 200 }, (_, id) => [`session:${id}`, newSession(id)]));
  await Promise.all([...sessions].map(([key, session]) =>
    client.multi().hSet(key, session).expire(key, 600).exec()));
  for (let step = 0; step < 600; step += 1) {
    const [key, session] = random.pick([...sessions]);
    switch (random.below(5)) {
      case 0:
        session.visits = String(Number(session.visits) + 3);
        assert.equal(await client.hIncrBy(key, 'visits', 3), Number(session.visits));
        break;
      case 1: {
        const field = `seen:${random.below(200)}`;
        assert.equal(await client.hSet(key, field, `at ${step}`), Number(!(field in session)));
        session[field] = `at ${step}`;
        break;
      }
      case 2: {
        const field = random.pick(Object.keys(session).filter((name) => name !== 'visits'));
        if (field === undefined) break;
        assert.equal(await client.hDel(key, [field, 'none']), 1);
        delete session[field];
        break;
      }
      case 3:
        assert.equal(await client.hSetNX(key, 'locale', 'fr'), Number(!('locale' in session)));
        session.locale ??= 'fr';
        break;
      default:
        assert.deepEqual(await client.hmGet(key, ['visits', 'user', 'none']),
          [session.visits, session.user ?? null, null]);
    }
  }
  for (const [key, session] of sessions) {
    assert.deepEqual({ ...await client.hGetAll(key) }, session);
    assert.equal(await client.hLen(key), Object.keys(session).length);
  }
  const [key, session] = random.pick([...sessions]);
  assert.deepEqual((await client.hKeys(key)).sort(), Object.keys(session).sort());
  assert.deepEqual((await client.hVals(key)).sort(), Object.values(session).sort());
  assert.equal(await client.hStrLen(key, 'visits'), session.visits.length);
  for (const { field, value } of await client.hRandFieldCountWithValues(key, -20)) {
    assert.equal(value, session[field]);
  }
  assert.ok((await client.ttl(key)) > 500);
}

// `filler` fields make the hash large.
async function fieldExpiry(client, filler) {
  const key = `login:${filler}`;
  const fields = Object.fromEntries(Array.from({ length: filler }, (_, i) => [`filler:${i}`, 'x']));
  await client.hSet(key, { ...fields, user: 'ada', theme: 'dark' });
  assert.equal(await client.hSetEx(key, { token: 'secret', code: '1234' },
    { expiration: { type: 'PX', value: 150 }, mode: 'FNX' }), 1);
  assert.equal(await client.hSetEx(key, { token: 'other' },
    { expiration: { type: 'EX', value: 9 }, mode: 'FNX' }), 0);
  assert.equal(await client.objectEncoding(key), filler ? 'hashtable' : 'listpackex');
  const [token, none, absent] = await client.hpTTL(key, ['token', 'user', 'absent']);
  assert.ok(token > 0 && token <= 150);
  assert.deepEqual([none, absent], [-1, -2]);
  assert.deepEqual(await client.hExpire(key, ['user', 'absent'], 100), [1, -2]);
  assert.deepEqual(await client.hExpire(key, ['user', 'theme'], 50, 'GT'), [0, 0]);
  assert.deepEqual(await client.hExpire(key, 'user', 50, 'LT'), [1]);
  assert.deepEqual(await client.hGetEx(key, ['theme', 'absent'],
    { expiration: { type: 'EX', value: 77 } }), ['dark', null]);
  const [user, theme] = await client.hTTL(key, ['user', 'theme']);
  assert.ok(user > 40 && user <= 50 && theme > 70 && theme <= 77);
  assert.deepEqual(await client.hPersist(key, ['theme', 'user', 'absent']), [1, 1, -2]);
  const inAnHour = Math.floor(Date.now() / 1000) + 3600;
  assert.deepEqual(await client.hExpireAt(key, 'theme', inAnHour), [1]);
  assert.deepEqual(await client.hExpireTime(key, ['theme', 'user']), [inAnHour, -1]);
  await sleep(180);
  assert.deepEqual(await client.hmGet(key, ['token', 'code', 'user']), [null, null, 'ada']);
  assert.equal(await client.hLen(key), filler + 2);
  assert.deepEqual({ ...await client.hGetAll(key) }, { ...fields, user: 'ada', theme: 'dark' });
  assert.deepEqual(await client.hGetDel(key, ['user', 'absent']), ['ada', null]);
  assert.deepEqual(await client.hExpire(key, 'theme', 0), [2]);
  assert.equal(await client.hLen(key), filler);
  assert.equal(await client.exists(key), Number(filler > 0));
}

// One-time codes: nobody deletes them, all of a kind go at once, and the hash follows the last one.
async function oneTimeCodes(client) {
  const codes = Array.from({ length: 600 }, (_, number) => [`code:${number}`, String(number)]);
  await client.hSet('codes', codes);
  const parts = [codes.slice(0, 200), codes.slice(200, 400), codes.slice(400)];
  for (const [place, part] of parts.entries()) {
    await client.hpExpire('codes', part.map(([field]) => field), 100 + 100 * place);
  }
  let last = 600;
  await until(async () => {
    const values = await client.hVals('codes');
    assert.ok(values.length <= last);
    assert.ok([600, 400, 200, 0].includes(values.length), `${values.length} codes at once`);
    last = values.length;
    return last === 0;
  });
  await until(async () => (await client.exists('codes')) === 0);
}

async function slidingExpiry(client, other) {
  await client.hSet('sliding', { cart: '[]', version: '1' });
  await client.pExpire('sliding', 200);
  for (let request = 1; request <= 6; request += 1) {
    await sleep(50);
    const ttl = request === 6 ? 60000 : 200;
    const [value] = await client.multi().hGet('sliding', 'cart').pExpire('sliding', ttl).exec();
    if (value === null) return; // The machine slept for longer than the session lives.
  }
  await client.watch('sliding');
  const version = Number(await client.hGet('sliding', 'version'));
  await other.hSet('sliding', 'version', String(version + 1));
  await assert.rejects(client.multi().hSet('sliding', 'cart', '[1]').exec(), { name: 'Error' });
  assert.deepEqual({ ...await client.hGetAll('sliding') },
    { cart: '[]', version: String(version + 1) });
  await client.pExpire('sliding', 20);
  await sleep(60);
  assert.equal(await client.hGet('sliding', 'cart'), null);
  assert.equal(await client.exists('sliding'), 0);
}

async function numbers(client) {
  assert.equal(await client.hIncrBy('sums', 'n', 4503599627370496), 4503599627370496);
  assert.equal(await client.hIncrBy('sums', 'n', -4503599627370497), -1);
  assert.equal(Number(await client.hIncrByFloat('sums', 'price', 10.25)), 10.25);
  assert.equal(String(await client.hIncrByFloat('sums', 'price', -0.5)), '9.75');
  await client.hSet('sums', 'word', 'x');
  await assert.rejects(client.hIncrBy('sums', 'word', 1), /hash value is not an integer/);
  await assert.rejects(client.lPush('sums', 'x'), /WRONGTYPE/);
  await client.del('sums');
}

// Fields that stay are found although others come and go meanwhile.
async function iterate(client, other, size) {
  const wanted = new Map(Array.from({ length: size }, (_, i) => [`stays:${i}`, `value ${i}`]));
  await client.hSet('scanned', [...wanted]);
  const found = new Map();
  let step = 0;
  for await (const entries of client.hScanIterator('scanned', { COUNT: 50 })) {
    for (const { field, value } of entries) found.set(field, value);
    const passing = Array.from({ length: 200 }, (_, i) => [`goes:${step}:${i}`, 'x']);
    await other.hSet('scanned', passing);
    await other.hDel('scanned', passing.map(([field]) => field));
    step += 1;
  }
  for (const [field, value] of wanted) assert.equal(found.get(field), value, field);
  const fields = new Set();
  for await (const some of client.hScanNoValuesIterator('scanned', { COUNT: 100 })) {
    for (const field of some) fields.add(field);
  }
  assert.deepEqual(fields, new Set(wanted.keys()));
  const values = new Set();
  for await (const some of client.hScanValuesIterator('scanned', { MATCH: 'stays:?' })) {
    for (const value of some) values.add(value);
  }
  assert.deepEqual(values, new Set([...wanted.values()].slice(0, 10)));
  await client.del('scanned');
}

await eachProtocol(async ({ client, open, name }) => {
  const other = await open();
  await check(`${name}: many sessions`, () => manySessions(client));
  await check(`${name}: fields that expire, few`, () => fieldExpiry(client, 0));
  await check(`${name}: fields that expire, many`, () => fieldExpiry(client, 700));
  await check(`${name}: one-time codes`, () => oneTimeCodes(client));
  await check(`${name}: sliding expiry`, () => slidingExpiry(client, other));
  await check(`${name}: numbers in fields`, () => numbers(client));
  await check(`${name}: iteration over fields`, async () => {
    for (const size of [100, 3000]) await iterate(client, other, size);
  });
});
