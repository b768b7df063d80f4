// Locks with an owner on ioredis: a lock is held by whoever set its key on most of three nodes, until its
// time is over or its owner, known by a random value, gives it back by script. The nodes are three
// databases of the server.
import { randomBytes } from 'node:crypto';
import { connect, eachProtocol } from './_ioredis.mjs';
import { assert, check, sleep, until } from './_tap.mjs';

const release = {
  numberOfKeys: 1,
  lua: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
};
const extend = {
  numberOfKeys: 1,
  lua: "if redis.call('GET', KEYS[1]) == ARGV[1] then "
    + "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
};

class Locks {
  constructor(mode) {
    this.nodes = [0, 1, 2].map((db) => connect(mode, { db, scripts: { release, extend } }));
  }

  async onMost(work) {
    const results = await Promise.allSettled(this.nodes.map(work));
    return results.filter(({ status, value }) => status === 'fulfilled' && value).length >= 2;
  }

  // The owner's value, or null when somebody else has the lock.
  async take(name, ttlMs) {
    const owner = randomBytes(16).toString('hex');
    const begun = Date.now();
    const most = await this.onMost(async (node) =>
      (await node.set(name, owner, 'PX', ttlMs, 'NX')) === 'OK');
    if (most && Date.now() - begun < ttlMs) return owner;
    await this.give(name, owner);
    return null;
  }

  async wait(name, ttlMs) {
    for (;;) {
      const owner = await this.take(name, ttlMs);
      if (owner !== null) return owner;
      await sleep(1 + Math.random() * 5);
    }
  }

  give(name, owner) {
    return this.onMost((node) => node.release(name, owner));
  }

  extend(name, owner, ttlMs) {
    return this.onMost((node) => node.extend(name, owner, ttlMs));
  }

  close() {
    for (const node of this.nodes) node.disconnect();
  }
}

async function together(mode, count, work) {
  const all = Array.from({ length: count }, () => new Locks(mode));
  try {
    await work(all);
  } finally {
    for (const locks of all) locks.close();
  }
}

// A read, a pause and a write that lose updates unless they exclude each other.
async function mutualExclusion({ client, mode }) {
  await client.set('balance', 0);
  let inside = 0;
  await together(mode, 6, (all) => Promise.all(all.map(async (locks) => {
    for (let round = 0; round < 15; round += 1) {
      const owner = await locks.wait('lock:balance', 60000);
      inside += 1;
      assert.equal(inside, 1);
      const balance = Number(await client.get('balance'));
      await sleep(1);
      await client.set('balance', balance + 1);
      inside -= 1;
      assert.ok(await locks.give('lock:balance', owner));
    }
  })));
  assert.equal(await client.get('balance'), '90');
  assert.equal(await client.exists('lock:balance'), 0);
}

async function onlyItsOwner({ mode }) {
  await together(mode, 2, async ([one, two]) => {
    const owner = await one.take('door', 60000);
    assert.match(owner, /^[0-9a-f]{32}$/);
    assert.equal(await two.take('door', 60000), null);
    assert.equal(await two.give('door', 'somebody'), false);
    assert.equal(await two.extend('door', 'somebody', 1000), false);
    assert.equal(await one.nodes[2].get('door'), owner);
    assert.ok(await one.extend('door', owner, 120000));
    assert.ok(await one.nodes[1].pttl('door') > 60000);
    assert.ok(await one.give('door', owner));
    assert.equal(await one.give('door', owner), false);
    assert.notEqual(await two.take('door', 60000), null);
  });
}

// The lock of an owner that is gone is free after its time, and the owner cannot give away another's.
async function timeIsOver({ mode }) {
  await together(mode, 2, async ([one, two]) => {
    const lost = await one.take('late', 80);
    if (lost === null) return; // The machine slept for longer than the lock lives.
    const next = await two.wait('late', 60000);
    assert.equal(await one.give('late', lost), false);
    assert.equal(await one.extend('late', lost, 60000), false);
    assert.equal(await two.nodes[0].get('late'), next);
  });
}

async function mostNodesAreEnough({ mode }) {
  await together(mode, 2, async ([one, two]) => {
    one.nodes[0].disconnect();
    await until(async () => one.nodes[0].status === 'end');
    const owner = await one.take('part', 60000);
    assert.notEqual(owner, null);
    assert.equal(await two.take('part', 60000), null);
    assert.equal(await two.nodes[0].exists('part'), 0); // It gave back what it had.
    assert.ok(await one.give('part', owner));
    one.nodes[1].disconnect();
    await until(async () => one.nodes[1].status === 'end');
    assert.equal(await one.take('part', 60000), null);
    assert.equal(await two.nodes[2].exists('part'), 0);
  });
}

// Many take the same lock at the same moment: at most one has it, and nobody keeps a part of it.
async function race({ client, mode }) {
  await together(mode, 8, async (all) => {
    for (let round = 0; round < 20; round += 1) {
      const owners = await Promise.all(all.map((locks) => locks.take('race', 60000)));
      const winners = owners.filter((owner) => owner !== null);
      assert.ok(winners.length <= 1);
      for (const [place, owner] of owners.entries()) {
        if (owner !== null) assert.ok(await all[place].give('race', owner));
      }
      for (const node of all[0].nodes) assert.equal(await node.exists('race'), 0);
    }
  });
  await client.script('FLUSH');
  await together(mode, 1, async ([locks]) => {
    assert.ok(await locks.give('race', await locks.take('race', 60000))); // NOSCRIPT is repaired.
  });
}

await eachProtocol(async (world) => {
  await check(`${world.name}: mutual exclusion`, () => mutualExclusion(world));
  await check(`${world.name}: only its owner gives it back`, () => onlyItsOwner(world));
  await check(`${world.name}: its time is over`, () => timeIsOver(world));
  await check(`${world.name}: most nodes are enough`, () => mostNodesAreEnough(world));
  await check(`${world.name}: everybody at once`, () => race(world));
});
