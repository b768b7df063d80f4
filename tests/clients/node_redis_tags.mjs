// A tag index on node-redis: for each tag the set of documents that have it, once with numbers and
// once with names, so that every encoding of sets takes part; compared with JavaScript's own sets.
import { eachProtocol } from './_node_redis.mjs';
import { Random, difference, intersection, sorted, union } from './_models.mjs';
import { assert, check, sleep } from './_tap.mjs';

const random = new Random();
const TAGS = ['blue', 'green', 'large', 'new', 'rare', 'small'];

async function fill(client, index, documents) {
  const writes = client.multi();
  for (const document of documents) {
    for (const [place, tag] of TAGS.entries()) {
      if (random.below(place + 2) === 0) {
        index.get(tag).add(document);
        writes.sAdd(`tag:${tag}`, document);
      }
    }
  }
  for (const added of await writes.execAsPipeline()) assert.equal(added, 1);
}

async function query(client, index) {
  const tags = Array.from({ length: 2 + random.below(3) }, () => random.pick(TAGS));
  const keys = tags.map((tag) => `tag:${tag}`);
  const sets = tags.map((tag) => index.get(tag));
  const both = intersection(...sets);
  const any = union(...sets);
  const only = difference(...sets);
  assert.deepEqual(sorted(await client.sInter(keys)), sorted(both));
  assert.deepEqual(sorted(await client.sUnion(keys)), sorted(any));
  assert.deepEqual(sorted(await client.sDiff(keys)), sorted(only));
  assert.equal(await client.sInterCard(keys), both.size);
  assert.equal(await client.sInterCard(keys, { LIMIT: 5 }), Math.min(both.size, 5));
  assert.equal(await client.sUnionCard(keys), any.size);
  assert.equal(await client.sDiffCard(keys), only.size);
  assert.equal(await client.sInterStore('found', keys), both.size);
  assert.equal(await client.exists('found'), Number(both.size > 0));
  assert.equal(await client.sUnionStore('found', ['found', ...keys]), any.size);
  assert.deepEqual(sorted(await client.sMembers('found')), sorted(any));
  assert.equal(await client.sDiffStore('found', ['found', ...keys]), 0);
}

// Documents lose a tag, get another one, or have one taken at random.
async function retag(client, index, documents) {
  const [from, to] = [random.pick(TAGS), random.pick(TAGS)];
  const document = random.pick(documents);
  const had = index.get(from).has(document);
  assert.equal(await client.sMove(`tag:${from}`, `tag:${to}`, document), Number(had));
  if (had) {
    index.get(from).delete(document);
    index.get(to).add(document);
  }
  const gone = Array.from({ length: 5 }, () => random.pick(documents));
  const count = gone.filter((one) => index.get(to).delete(one)).length;
  assert.equal(await client.sRem(`tag:${to}`, gone), count);
  const [popped] = await client.sPopCount(`tag:${from}`, 1);
  assert.equal(popped === undefined, index.get(from).size === 0);
  if (popped !== undefined) assert.ok(index.get(from).delete(popped));
}

async function useIndex(client, documents, encodings) {
  const index = new Map(TAGS.map((tag) => [tag, new Set()]));
  await fill(client, index, documents);
  for (let round = 0; round < 25; round += 1) {
    await query(client, index);
    await retag(client, index, documents);
  }
  for (const tag of TAGS) {
    const set = index.get(tag);
    const key = `tag:${tag}`;
    assert.equal(await client.sCard(key), set.size);
    if (set.size > 0) assert.ok(encodings.includes(await client.objectEncoding(key)));
    const asked = Array.from({ length: 20 }, () => random.pick(documents));
    assert.deepEqual(await client.smIsMember(key, asked),
      asked.map((document) => Number(set.has(document))));
    const some = await client.sRandMemberCount(key, 10);
    assert.equal(new Set(some).size, Math.min(10, set.size));
    assert.ok(some.every((document) => set.has(document)));
  }
  await client.del(TAGS.map((tag) => `tag:${tag}`));
}

// Members that stay are found although others come and go meanwhile.
async function iterate(client, other, wanted, passingName) {
  await client.sAdd('scanned', wanted);
  const found = new Set();
  let step = 0;
  for await (const members of client.sScanIterator('scanned', { COUNT: 50 })) {
    for (const member of members) found.add(member);
    const passing = Array.from({ length: 200 }, (_, i) => passingName(1000 * step + i));
    await other.sAdd('scanned', passing);
    await other.sRem('scanned', passing);
    step += 1;
  }
  for (const member of wanted) assert.ok(found.has(member), member);
  const matching = new Set();
  for await (const members of client.sScanIterator('scanned', { MATCH: '*7' })) {
    for (const member of members) matching.add(member);
  }
  assert.deepEqual(matching, new Set(wanted.filter((member) => member.endsWith('7'))));
  await client.del('scanned');
}

// A tag for a while: Kvik's own commands, which the library sends like any other.
async function passingTags(client) {
  await client.sAdd('on sale', ['1', '2', '3', '4']);
  assert.deepEqual(await client.sendCommand(
    ['SPEXPIRE', 'on sale', '60', 'MEMBERS', '3', '2', '3', '9']), [1, 1, -2]);
  const [two, four] = await client.sendCommand(['SPTTL', 'on sale', 'MEMBERS', '2', '2', '4']);
  assert.ok(two > 0 && two <= 60 && four === -1);
  await sleep(80);
  assert.deepEqual(sorted(await client.sMembers('on sale')), ['1', '4']);
  assert.equal(await client.sCard('on sale'), 2);
}

await eachProtocol(async ({ client, open, name }) => {
  const numbers = (count) => Array.from({ length: count }, (_, i) => String(i * 3));
  const names = (count) => Array.from({ length: count }, (_, i) => `document ${i}`);
  await check(`${name}: few documents with numbers`,
    () => useIndex(client, numbers(100), ['intset']));
  await check(`${name}: few documents with names`,
    () => useIndex(client, names(100), ['listpack']));
  await check(`${name}: many documents with numbers`,
    () => useIndex(client, numbers(1500), ['intset', 'hashtable']));
  await check(`${name}: many documents with names`,
    () => useIndex(client, names(1500), ['hashtable']));
  await check(`${name}: iteration over members`, async () => {
    const other = await open();
    for (const size of [100, 3000]) {
      await iterate(client, other, numbers(size), (number) => String(1 + number * 3));
      await iterate(client, other, names(size), (number) => `passing ${number}`);
    }
  });
  await check(`${name}: tags for a while`, () => passingTags(client));
});
