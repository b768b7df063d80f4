// Job queues on node-redis: workers in processes of their own that wait with BLMOVE and lose no job
// when one of them is killed, and the promises that blocking commands make to those who wait.
//
// Started as `node node_redis_queue.mjs worker MODE NAME [crash]` it is one of those workers.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { connect, eachProtocol } from './_node_redis.mjs';
import { assert, check, sleep, until } from './_tap.mjs';

// A job is in the queue or in the list of the worker that has it, until its result is stored.
async function work(mode, name, crash) {
  const client = await connect(Number(mode));
  for (;;) {
    const text = await client.blMove('jobs', `working:${name}`, 'LEFT', 'RIGHT', 20);
    if (crash) {
      process.kill(process.pid, 'SIGKILL');
      await sleep(20000);
    }
    const job = JSON.parse(text);
    const done = client.multi().lRem(`working:${name}`, 1, text);
    if (job.id !== undefined) {
      done.hSet('results', job.id, job.number ** 2).hIncrBy('shares', name, 1);
    }
    await done.exec();
    if (job.stop) break;
  }
  await client.close();
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
    assert.equal(await client.rPush('jobs', jobs), 300);
    assert.deepEqual(await ends[2], [null, 'SIGKILL']);
    const [lost] = await client.lRange('working:three', 0, -1);
    assert.ok(jobs.includes(lost));
    await until(async () => (await client.hLen('results')) === 299);
    assert.equal(await client.hExists('results', String(JSON.parse(lost).id)), 0);
    assert.equal(await client.lMove('working:three', 'jobs', 'LEFT', 'LEFT'), lost);
    assert.equal(await client.lMove('working:three', 'jobs', 'LEFT', 'LEFT'), null);
    await until(async () => (await client.hLen('results')) === 300);
    await client.rPush('jobs', ['{"stop":true}', '{"stop":true}']);
    assert.deepEqual(await Promise.all(ends.slice(0, 2)), [[0, null], [0, null]]);
  } finally {
    for (const worker of workers) worker.kill('SIGKILL');
  }
  const results = await client.hGetAll('results');
  for (let id = 0; id < 300; id += 1) assert.equal(Number(results[id]), (id * 7) ** 2);
  const shares = await client.hGetAll('shares');
  assert.deepEqual(Object.keys(shares).sort(), ['one', 'two']);
  assert.equal(Number(shares.one) + Number(shares.two), 300);
  assert.equal(await client.exists(['jobs', 'working:one', 'working:two', 'working:three']), 0);
}

async function firstComeFirstServed({ client, open }) {
  const replies = [];
  for (let place = 0; place < 8; place += 1) {
    const waiter = await open();
    replies.push(place % 2 ? waiter.blPop(['turns', 'other'], 20)
      : waiter.blMove('turns', 'taken', 'LEFT', 'RIGHT', 20));
    await waiting(client, place + 1);
  }
  const items = Array.from({ length: 10 }, (_, number) => `item ${number}`);
  await client.rPush('turns', items);
  const got = (await Promise.all(replies)).map((reply) => reply.element ?? reply);
  assert.deepEqual(got, items.slice(0, 8));
  assert.deepEqual(await client.lRange('turns', 0, -1), items.slice(8));
  assert.deepEqual(await client.lRange('taken', 0, -1), ['item 0', 'item 2', 'item 4', 'item 6']);
}

// What goes in comes out once, whoever takes it.
async function manyToMany({ open }) {
  const taken = [];
  const consume = async () => {
    const consumer = await open();
    for (;;) {
      const { key, element } = await consumer.brPop(['urgent', 'usual'], 20);
      if (element === 'stop') return;
      taken.push(`${key} ${element}`);
    }
  };
  const produce = async (place) => {
    const producer = await open();
    for (let number = 0; number < 250; number += 1) {
      await producer.lPush(number % 5 ? 'usual' : 'urgent', `${place}-${number}`);
    }
  };
  const consumers = Array.from({ length: 5 }, consume);
  await Promise.all([0, 1, 2, 3].map(produce));
  await (await open()).lPush('usual', Array(5).fill('stop'));
  await Promise.all(consumers);
  const put = [0, 1, 2, 3].flatMap((place) => Array.from({ length: 250 },
    (_, number) => `${number % 5 ? 'usual' : 'urgent'} ${place}-${number}`));
  assert.deepEqual(taken.sort(), put.sort());
}

async function priorities({ client, open }) {
  const waiter = await open();
  await client.rPush('low', ['l1', 'l2']);
  await client.rPush('high', 'h1');
  assert.deepEqual({ ...await waiter.blPop(['high', 'low'], 1) }, { key: 'high', element: 'h1' });
  assert.deepEqual({ ...await waiter.blPop(['high', 'low'], 1) }, { key: 'low', element: 'l1' });
  const pending = waiter.bzPopMin(['later', 'due'], 20);
  await waiting(client, 1);
  const jobs = Array.from({ length: 50 }, (_, id) => ({ value: `job ${id}`, score: (id * 37) % 50 }));
  await client.zAdd('due', jobs);
  const taken = [await pending];
  while (taken.length < 50) taken.push(await waiter.bzPopMin('due', 1));
  assert.deepEqual(taken.map(({ score }) => score), Array.from({ length: 50 }, (_, rank) => rank));
  assert.deepEqual(taken.map(({ value }) => value),
    jobs.sort((a, b) => a.score - b.score).map(({ value }) => value));
  const batch = waiter.bzmPop(20, ['none', 'due'], 'MAX', { COUNT: 2 });
  await waiting(client, 1);
  await client.zAdd('due', [{ value: 'a', score: 1 }, { value: 'b', score: 2.5 },
    { value: 'c', score: 3 }]);
  const { key, members } = await batch;
  assert.equal(key, 'due');
  assert.deepEqual(members.map(({ value, score }) => [value, score]), [['c', 3], ['b', 2.5]]);
}

async function batches({ client, open }) {
  const waiter = await open();
  const popped = waiter.blmPop(20, ['none', 'bulk'], 'LEFT', { COUNT: 3 });
  await waiting(client, 1);
  await client.rPush('bulk', ['1', '2', '3', '4', '5', '6']);
  assert.deepEqual(await popped, ['bulk', ['1', '2', '3']]);
  assert.deepEqual(await client.lMoveM('bulk', 'moved', 'LEFT', 'RIGHT',
    { COUNT: 2, ORDER: 'BULK' }), ['4', '5']);
  const exact = waiter.blMoveM('bulk', 'moved', 'LEFT', 'RIGHT', 20, { EXACTLY: 2, ORDER: 'BULK' });
  await waiting(client, 1);
  await client.rPush('bulk', '7');
  assert.deepEqual(await exact, ['6', '7']);
  assert.deepEqual(await client.lRange('moved', 0, -1), ['4', '5', '6', '7']);
}

// Each of three waits for what the one before it hands on.
async function chain({ client, open }) {
  const [first, second, third] = [await open(), await open(), await open()];
  const replies = [first.blMove('step1', 'step2', 'RIGHT', 'LEFT', 20),
    second.blMove('step2', 'step3', 'RIGHT', 'LEFT', 20), third.blPop('step3', 20)];
  await waiting(client, 3);
  const after = await client.multi().rPush('step1', 'parcel').lLen('step1').exec();
  assert.deepEqual(after, [1, 1]);
  const [one, two, three] = await Promise.all(replies);
  assert.deepEqual([one, two, { ...three }],
    ['parcel', 'parcel', { key: 'step3', element: 'parcel' }]);
  assert.equal(await client.exists(['step1', 'step2', 'step3']), 0);
}

async function endings({ client, open }) {
  const waiter = await open();
  const begun = performance.now();
  assert.equal(await waiter.blPop('never', 0.15), null);
  assert.ok(performance.now() - begun >= 145);
  assert.equal(await waiter.blMove('never', 'nowhere', 'LEFT', 'LEFT', 0.01), null);
  const id = await waiter.clientId();
  const unblocked = waiter.blPop('never', 20);
  await waiting(client, 1);
  assert.equal(await client.clientUnblock(id), 1);
  assert.equal(await unblocked, null);
  const vanished = await open();
  vanished.blPop('never', 20).catch(() => {});
  await waiting(client, 1);
  vanished.destroy();
  await waiting(client, 0);
  assert.equal(await client.rPush('never', 'kept'), 1);
  assert.deepEqual(await client.lRange('never', 0, -1), ['kept']);
  assert.deepEqual(await client.multi().blPop('none', 0).blPop('never', 0).exec()
    .then(([none, kept]) => [none, kept.element]), [null, 'kept']);
  await client.set('text', 'x');
  await assert.rejects(waiter.blPop('text', 0), /WRONGTYPE/);
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
