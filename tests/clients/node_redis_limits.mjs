// Rate limits by script on node-redis: a bucket of tokens in a hash, and a window of moments in a sorted
// set. Time is given, so that what must be allowed is known; and then the server's own.
import { createHash } from 'node:crypto';
import { defineScript } from 'redis';
import { connect, eachProtocol } from './_node_redis.mjs';
import { Random } from './_models.mjs';
import { assert, check } from './_tap.mjs';

const random = new Random();

// Scripts that node-redis runs by their digests; arguments are numbers.
function script(text) {
  return defineScript({
    SCRIPT: text,
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, key, ...numbers) {
      parser.pushKey(key);
      parser.push(...numbers.map(String));
    },
    transformReply: undefined,
  });
}

const scripts = {
  bucket: script(`
    local now, capacity, rate, cost = unpack(ARGV)
    now, capacity, rate, cost = tonumber(now), tonumber(capacity), tonumber(rate), tonumber(cost)
    local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
    local tokens, at = tonumber(state[1]) or capacity, tonumber(state[2]) or now
    tokens = math.min(capacity, tokens + math.floor((now - at) * rate / 1000))
    local allowed = tokens >= cost
    if allowed then tokens = tokens - cost end
    redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
    redis.call('PEXPIRE', KEYS[1], 600000)
    return {allowed and 1 or 0, tokens}`),
  window: script(`
    local now, width, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - width)
    local count = redis.call('ZCARD', KEYS[1])
    if count >= limit then
      local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
      return {0, oldest[2] + width - now}
    end
    redis.call('ZADD', KEYS[1], now, now .. ':' .. ARGV[4])
    redis.call('PEXPIRE', KEYS[1], 600000)
    return {1, limit - count - 1}`),
  second: script(`
    local time = redis.call('TIME')
    local name = KEYS[1] .. ':' .. time[1]
    local count = redis.call('INCR', name)
    if count == 1 then redis.call('EXPIRE', name, 600) end
    return {count <= tonumber(ARGV[1]) and 1 or 0, tonumber(time[1])}`),
};

async function limiter(mode) {
  return connect(mode, { scripts });
}

async function buckets({ mode }) {
  const client = await limiter(mode);
  const users = Array.from({ length: 10 }, () => ({ tokens: 20, at: 0 }));
  let now = 1e12;
  for (const user of users) user.at = now;
  let allowed = 0;
  for (let step = 0; step < 2000; step += 1) {
    now += random.below(40);
    const id = random.below(users.length);
    const cost = 1 + random.below(3);
    const user = users[id];
    if (user.used === undefined) user.at = now;
    user.used = true;
    user.tokens = Math.min(20, user.tokens + Math.floor(((now - user.at) * 7) / 1000));
    user.at = now;
    const fine = user.tokens >= cost;
    if (fine) user.tokens -= cost;
    allowed += Number(fine);
    assert.deepEqual(await client.bucket(`bucket:${id}`, now, 20, 7, cost),
      [Number(fine), user.tokens]);
  }
  assert.ok(allowed > 100 && allowed < 2000);
  client.destroy();
}

async function windows({ mode }) {
  const client = await limiter(mode);
  let moments = [];
  let now = 5000000;
  for (let step = 0; step < 1500; step += 1) {
    now += random.below(30);
    moments = moments.filter((moment) => moment > now - 1000);
    const wanted = moments.length < 25 ? [1, 24 - moments.length] : [0, moments[0] + 1000 - now];
    if (wanted[0]) moments.push(now);
    assert.deepEqual(await client.window('window', now, 1000, 25, step), wanted);
  }
  assert.equal(await client.zCard('window'), moments.length);
  client.destroy();
}

// Whoever asks at the same time, and however the requests are mixed, the limit is the limit.
async function togetherNotMore({ mode }) {
  const clients = await Promise.all(Array.from({ length: 8 }, () => limiter(mode)));
  const ask = (client, number) => client.bucket(`shared:${number % 5}`, 1000, 40, 0, 1);
  const replies = await Promise.all(clients.flatMap((client) =>
    Array.from({ length: 50 }, (_, number) => ask(client, number))));
  assert.equal(replies.filter(([allowed]) => allowed).length, 5 * 40);
  const left = replies.filter(([allowed]) => allowed).map(([, tokens]) => tokens).sort();
  const wanted = Array.from({ length: 5 * 40 }, (_, number) => Math.floor(number / 5)).sort();
  assert.deepEqual(left, wanted);
  for (const client of clients) client.destroy();
}

async function byTheServersClock({ mode }) {
  const clients = await Promise.all([limiter(mode), limiter(mode)]);
  const replies = await Promise.all(clients.flatMap((client) =>
    Array.from({ length: 300 }, () => client.second('clock', 50))));
  const seconds = new Map();
  for (const [allowed, second] of replies) {
    const [all, fine] = seconds.get(second) ?? [0, 0];
    seconds.set(second, [all + 1, fine + allowed]);
  }
  for (const [all, fine] of seconds.values()) assert.equal(fine, Math.min(all, 50));
  for (const client of clients) client.destroy();
}

// The same in a transaction and in a pipeline, and after the server has forgotten the scripts.
async function otherWays({ client: plain, mode }) {
  const client = await limiter(mode);
  await client.scriptFlush();
  assert.deepEqual(await client.bucket('ways', 1, 5, 0, 1), [1, 4]);
  const { SCRIPT } = scripts.bucket;
  const sha = createHash('sha1').update(SCRIPT).digest('hex');
  assert.deepEqual(await plain.scriptExists(sha), [1]);
  const args = { keys: ['ways'], arguments: ['1', '5', '0', '1'] };
  assert.deepEqual(await plain.multi().evalSha(sha, args).hGet('ways', 'tokens').exec(),
    [[1, 3], '3']);
  assert.deepEqual(await client.multi().bucket('ways', 1, 5, 0, 1).bucket('ways', 1, 5, 0, 3).exec(),
    [[1, 2], [0, 2]]);
  assert.deepEqual(await plain.eval(SCRIPT, args), [1, 1]);
  await plain.set('ways', 'text');
  await assert.rejects(client.bucket('ways', 1, 5, 0, 1), /WRONGTYPE/);
  client.destroy();
}

await eachProtocol(async (world) => {
  await check(`${world.name}: buckets of tokens`, () => buckets(world));
  await check(`${world.name}: windows`, () => windows(world));
  await check(`${world.name}: many at once are not more`, () => togetherNotMore(world));
  await check(`${world.name}: the server's clock`, () => byTheServersClock(world));
  await check(`${world.name}: other ways to run it`, () => otherWays(world));
  await world.client.scriptFlush();
});
