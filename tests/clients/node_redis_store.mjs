// A store of sessions on node-redis that is told what becomes of them: each key with a time to live, and
// notifications of the server for those who must clean up behind it.
import { connect, eachProtocol } from './_node_redis.mjs';
import { Random } from './_models.mjs';
import { assert, check, until } from './_tap.mjs';

const random = new Random();

// What was said of each key, in order.
async function listen(mode, pattern) {
  const ear = await connect(mode);
  const events = new Map();
  await ear.pSubscribe(pattern, (event, channel) => {
    const key = channel.slice(channel.indexOf(':') + 1);
    events.set(key, [...(events.get(key) ?? []), event]);
  });
  return { ear, events };
}

// Sessions that are visited, ended and left alone. Each reply says whether it was in time.
async function lives({ client, mode }) {
  const { ear, events } = await listen(mode, '__keyspace@0__:life:*');
  const wanted = new Map();
  for (let id = 0; id < 300; id += 1) {
    const key = `life:${id}`;
    await client.set(key, JSON.stringify({ id }), {
      expiration: { type: 'PX', value: 60 + random.below(200) },
    });
    wanted.set(key, ['set', 'expire']);
  }
  for (let id = 0; id < 300; id += 1) {
    const key = `life:${id}`;
    const story = wanted.get(key);
    if (id % 3 === 0) {
      if (await client.persist(key)) story.push('persist');
      else story.push('expired');
    } else if (id % 3 === 1 && await client.del(key)) {
      story.push('del');
    } else {
      story.push('expired');
    }
  }
  await until(async () => [...wanted].every(([key, story]) =>
    events.get(key)?.length >= story.length));
  assert.deepEqual(events, wanted);
  for (const [key, story] of wanted) {
    assert.equal(await client.exists(key), Number(story.at(-1) === 'persist'));
  }
  ear.destroy();
}

// Who cleans up behind a session sees it gone, and nobody else's.
async function cleaningUp({ client, mode, open }) {
  const ear = await connect(mode);
  const worker = await open();
  const cleaned = [];
  await ear.subscribe('__keyevent@0__:expired', async (key) => {
    const id = key.slice('owner:'.length);
    const replies = await worker.multi().exists(key).del(`files:${id}`).exec();
    cleaned.push([Number(id), ...replies]);
  });
  const ids = Array.from({ length: 100 }, (_, id) => id);
  await Promise.all(ids.map((id) => client.multi()
    .rPush(`files:${id}`, ['a', 'b'])
    .set(`owner:${id}`, 'x', { expiration: { type: 'PX', value: 30 + random.below(100) } })
    .exec()));
  await until(async () => cleaned.length >= ids.length);
  assert.deepEqual(cleaned.sort(([a], [b]) => a - b), ids.map((id) => [id, 0, 1]));
  assert.deepEqual(await client.keys('files:*'), []);
  ear.destroy();
}

// A visit makes a session live longer; what is kept for each is what was written last.
async function visits({ client, open }) {
  const others = await Promise.all([open(), open(), open()]);
  const sessions = new Map();
  for (let step = 0; step < 800; step += 1) {
    const id = `visit:${random.below(40)}`;
    const via = random.pick([client, ...others]);
    const session = sessions.get(id);
    if (session === undefined) {
      const text = JSON.stringify({ id, step });
      assert.equal(await via.set(id, text, {
        condition: 'NX', expiration: { type: 'EX', value: 600 },
      }), 'OK');
      sessions.set(id, text);
    } else if (random.below(4) === 0) {
      assert.equal(await via.getDel(id), session);
      sessions.delete(id);
    } else if (random.below(3) === 0) {
      const text = JSON.stringify({ id, step });
      assert.equal(await via.set(id, text, { expiration: 'KEEPTTL', GET: true }), session);
      sessions.set(id, text);
    } else {
      assert.equal(await via.getEx(id, { type: 'EX', value: 1000 + step }), session);
      const ttl = await via.ttl(id);
      assert.ok(ttl > 990 && ttl <= 1000 + step);
    }
  }
  for (const [id, text] of sessions) assert.equal(await client.get(id), text);
  assert.equal((await client.keys('visit:*')).length, sessions.size);
}

// Nothing is said that was not asked for.
async function onlyWhatIsAsked({ client, mode }) {
  await client.configSet('notify-keyspace-events', 'Kx');
  const { ear, events } = await listen(mode, '__key*__:*');
  await client.set('quiet', 'x');
  await client.set('loud', 'x', { expiration: { type: 'PX', value: 20 } });
  await client.del('quiet');
  await until(async () => events.has('loud'));
  await ear.ping();
  assert.deepEqual([...events], [['loud', ['expired']]]);
  ear.destroy();
}

await eachProtocol(async (world) => {
  await world.client.configSet('notify-keyspace-events', 'KEA');
  await check(`${world.name}: lives of sessions`, () => lives(world));
  await check(`${world.name}: cleaning up behind them`, () => cleaningUp(world));
  await check(`${world.name}: visits`, () => visits(world));
  await check(`${world.name}: only what is asked for`, () => onlyWhatIsAsked(world));
  await world.client.configSet('notify-keyspace-events', '');
});
