// Job queues on ioredis: workers in processes of their own that wait with BLMOVE and lose no job
// when one of them is killed, and the promises that blocking commands make to those who wait.
//
// Started as `node ioredis_queue.mjs worker MODE NAME [crash]` it is one of those workers.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { connect, eachProtocol, scored } from './_ioredis.mjs';
import { assert, check, sleep, until } from './_tap.mjs';

// A job is in the queue or in the list of the worker that has it, until its result is stored.
async function work(mode, name, crash) {
  const client = connect(mode);
  for (;;) {
    const text = await client.blmove('jobs', `working:${name}`, 'LEFT', 'RIGHT', 20);
    if (crash) {
      process.kill(process.pid, 'SIGKILL');
      await sleep(20000);
    }
    const job = JSON.parse(text);
    const done = client.multi().lrem(`working:${name}`, 1, text);
    if (job.id !== undefined) {
      done.hset('results', job.id, job.number ** 2).hincrby('shares', name, 1);
    }
    await done.exec();
    if (job.stop) break;
  }
  await client.quit();
  process.disconnect();
}

function startWorker(mode, name, ...more) {
  return fork(fileURLToPath(import.meta.url), ['worker', mode, name, ...more]);
}

async function waiting(client, count) {
  await until(async () =>
    (await client.info('clients')).includes(`blocked_clients:${count}\r\n`));
}

async function survivesCrash({ client, mode }) {
  const jobs = Array.from({ length: 300 }, (_, id) => JSON.stringify({ id, number: id * 7 }));
  const workers = [startWorker(mode, 'one'), startWorker(mode, 'two'),
    startWorker(mode, 'three', 'crash')];
  const ends = workers.map((worker) => once(worker, 'exit'));
  try {
    await waiting(client, 3);
    assert.equal(await client.rpush('jobs', ...jobs), 300);
    assert.deepEqual(await ends[2], [null, 'SIGKILL']);
    const [lost] = await client.lrange('working:three', 0, -1);
    assert.ok(jobs.includes(lost));
    await until(async () => (await client.hlen('results')) === 299);
    assert.equal(await client.hexists('results', JSON.parse(lost).id), 0);
    assert.equal(await client.rpoplpush('working:three', 'jobs'), lost);
    assert.equal(await client.rpoplpush('working:three', 'jobs'), null);
    await until(async () => (await client.hlen('results')) === 300);
    await client.rpush('jobs', '{"stop":true}', '{"stop":true}');
    assert.deepEqual(await Promise.all(ends.slice(0, 2)), [[0, null], [0, null]]);
  } finally {
    for (const worker of workers) worker.kill('SIGKILL');
  }
  const results = await client.hgetall('results');
  for (let id = 0; id < 300; id += 1) assert.equal(Number(results[id]), (id * 7) ** 2);
  const shares = await client.hgetall('shares');
  assert.deepEqual(Object.keys(shares).sort(), ['one', 'two']);
  assert.equal(Number(shares.one) + Number(shares.two), 300);
  assert.equal(await client.exists('jobs', 'working:one', 'working:two', 'working:three'), 0);
}

async function firstComeFirstServed({ client, open }) {
  const replies = [];
  for (let place = 0; place < 6; place += 1) {
    const waiter = await open();
    replies.push(place % 2 ? waiter.brpop('turns', 'other', 20)
      : waiter.brpoplpush('turns', 'taken', 20));
    await waiting(client, place + 1);
  }
  const items = Array.from({ length: 8 }, (_, number) => `item ${number}`);
  await client.lpush('turns', ...items);
  const got = (await Promise.all(replies)).map((reply) => [reply].flat().at(-1));
  assert.deepEqual(got, items.slice(0, 6));
  assert.deepEqual(await client.lrange('turns', 0, -1), ['item 7', 'item 6']);
  assert.deepEqual(await client.lrange('taken', 0, -1), ['item 4', 'item 2', 'item 0']);
}

// What goes in comes out once, whoever takes it.
async function manyToMany({ open }) {
  const taken = [];
  const consume = async () => {
    const consumer = await open();
    for (;;) {
      const [key, element] = await consumer.brpop('urgent', 'usual', 20);
      if (element === 'stop') return;
      taken.push(`${key} ${element}`);
    }
  };
  const produce = async (place) => {
    const pipeline = (await open()).pipeline();
    for (let number = 0; number < 250; number += 1) {
      pipeline.lpush(number % 5 ? 'usual' : 'urgent', `${place}-${number}`);
    }
    for (const [problem] of await pipeline.exec()) assert.equal(problem, null);
  };
  const consumers = Array.from({ length: 5 }, consume);
  await Promise.all([0, 1, 2, 3].map(produce));
  await (await open()).lpush('usual', Array(5).fill('stop'));
  await Promise.all(consumers);
  const put = [0, 1, 2, 3].flatMap((place) => Array.from({ length: 250 },
    (_, number) => `${number % 5 ? 'usual' : 'urgent'} ${place}-${number}`));
  assert.deepEqual(taken.sort(), put.sort());
}

async function priorities({ client, open }) {
  const waiter = await open();
  await client.rpush('low', 'l1', 'l2');
  await client.rpush('high', 'h1');
  assert.deepEqual(await waiter.blpop('high', 'low', 1), ['high', 'h1']);
  assert.deepEqual(await waiter.blpop('high', 'low', 1), ['low', 'l1']);
  const pending = waiter.bzpopmin('later', 'due', 20);
  await waiting(client, 1);
  const jobs = Array.from({ length: 50 }, (_, id) => [(id * 37) % 50, `job ${id}`]);
  await client.zadd('due', ...jobs.flat());
  const taken = [await pending];
  while (taken.length < 50) taken.push(await waiter.bzpopmin('due', 1));
  assert.deepEqual(taken.map(([, member, score]) => [Number(score), member]),
    jobs.sort((a, b) => a[0] - b[0]));
  const batch = waiter.bzmpop(20, 2, 'none', 'due', 'MAX', 'COUNT', 2);
  await waiting(client, 1);
  await client.zadd('due', 1, 'a', 2.5, 'b', 3, 'c');
  const [key, members] = await batch;
  assert.equal(key, 'due');
  assert.deepEqual(scored(members), [['c', 3], ['b', 2.5]]);
}

async function batches({ client, open }) {
  const waiter = await open();
  const popped = waiter.blmpop(20, 2, 'none', 'bulk', 'RIGHT', 'COUNT', 3);
  await waiting(client, 1);
  await client.rpush('bulk', '1', '2', '3', '4', '5', '6');
  assert.deepEqual(await popped, ['bulk', ['6', '5', '4']]);
  assert.deepEqual(await client.lmpop(2, 'none', 'bulk', 'LEFT'), ['bulk', ['1']]);
  const exact = waiter.call('BLMOVEM', 'bulk', 'moved', 'LEFT', 'RIGHT', 20, 'EXACTLY', 3, 'OBO');
  await waiting(client, 1);
  await client.rpush('bulk', '7');
  assert.deepEqual(await exact, ['2', '3', '7']);
  assert.deepEqual(await client.lrange('moved', 0, -1), ['2', '3', '7']);
}

// Each of three waits for what the one before it hands on.
async function chain({ client, open }) {
  const [first, second, third] = [await open(), await open(), await open()];
  const replies = [first.blmove('step1', 'step2', 'RIGHT', 'LEFT', 20),
    second.blmove('step2', 'step3', 'RIGHT', 'LEFT', 20), third.blpop('step3', 20)];
  await waiting(client, 3);
  const after = await client.multi().rpush('step1', 'parcel').llen('step1').exec();
  assert.deepEqual(after, [[null, 1], [null, 1]]);
  assert.deepEqual(await Promise.all(replies), ['parcel', 'parcel', ['step3', 'parcel']]);
  assert.equal(await client.exists('step1', 'step2', 'step3'), 0);
}

async function endings({ client, open }) {
  const waiter = await open();
  const begun = performance.now();
  assert.equal(await waiter.blpop('never', 0.15), null);
  assert.ok(performance.now() - begun >= 145);
  assert.equal(await waiter.blmove('never', 'nowhere', 'LEFT', 'LEFT', 0.01), null);
  const id = await waiter.client('ID');
  const unblocked = waiter.blpop('never', 20);
  const refused = assert.rejects(unblocked, /UNBLOCKED/);
  await waiting(client, 1);
  assert.equal(await client.client('UNBLOCK', id, 'ERROR'), 1);
  await refused;
  const vanished = await open();
  vanished.blpop('never', 20).catch(() => {});
  await waiting(client, 1);
  vanished.disconnect();
  await waiting(client, 0);
  assert.equal(await client.rpush('never', 'kept'), 1);
  assert.deepEqual(await client.lrange('never', 0, -1), ['kept']);
  assert.deepEqual(await client.multi().blpop('none', 0).blpop('never', 0).exec(),
    [[null, null], [null, ['never', 'kept']]]);
  await client.set('text', 'x');
  await assert.rejects(waiter.blpop('text', 0), /WRONGTYPE/);
}

if (process.argv[2] === 'worker') {
  await work(...process.argv.slice(3));
} else {
  await eachProtocol(async (on) => {
    await check(`${on.name}: no job is lost with a killed worker`, () => survivesCrash(on));
    await check(`${on.name}: first come, first served`, () => firstComeFirstServed(on));
    await check(`${on.name}: many producers, many consumers`, () => manyToMany(on));
    await check(`${on.name}: queues by priority`, () => priorities(on));
    await check(`${on.name}: batches`, () => batches(on));
    await check(`${on.name}: a chain of waiting moves`, () => chain(on));
    await check(`${on.name}: time-out, unblock, hang-up`, () => endings(on));
  });
}
