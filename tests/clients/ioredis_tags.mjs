// A tag index on ioredis: for each tag the set of documents that have it, once with numbers and once
// with names, so that every encoding of sets takes part; compared with JavaScript's own sets.
import { eachProtocol } from './_ioredis.mjs';
import { Random, difference, intersection, sorted, union } from './_models.mjs';
import { assert, check, until } from './_tap.mjs';

const random = new Random();
const TAGS = ['blue', 'green', 'large', 'new', 'rare', 'small'];

async function fill(client, index, documents) {
  for (const [place, tag] of TAGS.entries()) {
    const some = documents.filter(() => random.below(place + 2) === 0);
    for (const document of some) index.get(tag).add(document);
    if (some.length > 0) assert.equal(await client.sadd(`tag:${tag}`, ...some), some.length);
  }
}

async function query(client, index) {
  const tags = Array.from({ length: 2 + random.below(3) }, () => random.pick(TAGS));
  const keys = tags.map((tag) => `tag:${tag}`);
  const sets = tags.map((tag) => index.get(tag));
  const both = intersection(...sets);
  const any = union(...sets);
  const only = difference(...sets);
  const replies = await client.pipeline().sinter(...keys).sunion(...keys).sdiff(...keys)
    .sintercard(keys.length, ...keys, 'LIMIT', 5).exec();
  assert.ok(replies.every(([problem]) => problem === null));
  const [inBoth, inAny, inOnly, count] = replies.map(([, reply]) => reply);
  assert.deepEqual([inBoth, inAny, inOnly].map(sorted), [both, any, only].map(sorted));
  assert.equal(count, Math.min(both.size, 5));
  assert.deepEqual(await client.multi().sinterstore('found', ...keys)
    .sunionstore('found', 'found', ...keys).sdiffstore('rest', 'found', ...keys.slice(1)).exec(),
  [[null, both.size], [null, any.size], [null, difference(any, ...sets.slice(1)).size]]);
  assert.deepEqual(sorted(await client.smembers('found')), sorted(any));
  assert.equal(await client.call('SDIFFCARD', keys.length, ...keys), only.size);
  assert.equal(await client.call('SUNIONCARD', keys.length, ...keys), any.size);
}

// Documents lose a tag, get another one, or have some taken at random.
async function retag(client, index, documents) {
  const [from, to] = [random.pick(TAGS), random.pick(TAGS)];
  const document = random.pick(documents);
  const had = index.get(from).has(document);
  assert.equal(await client.smove(`tag:${from}`, `tag:${to}`, document), Number(had));
  if (had) {
    index.get(from).delete(document);
    index.get(to).add(document);
  }
  const gone = Array.from({ length: 5 }, () => random.pick(documents));
  const count = gone.filter((one) => index.get(to).delete(one)).length;
  assert.equal(await client.srem(`tag:${to}`, ...gone), count);
  const popped = await client.spop(`tag:${from}`, 2);
  assert.equal(popped.length, Math.min(2, index.get(from).size));
  for (const one of popped) assert.ok(index.get(from).delete(one));
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
    assert.equal(await client.scard(key), set.size);
    if (set.size > 0) assert.ok(encodings.includes(await client.object('ENCODING', key)));
    const asked = Array.from({ length: 20 }, () => random.pick(documents));
    assert.deepEqual(await client.smismember(key, ...asked),
      asked.map((document) => Number(set.has(document))));
    const some = await client.srandmember(key, 10);
    assert.equal(new Set(some).size, Math.min(10, set.size));
    assert.ok(some.every((document) => set.has(document)));
  }
  await client.del(...TAGS.map((tag) => `tag:${tag}`));
}

// Members that stay are found although others come and go meanwhile.
async function iterate(client, other, wanted, passingName) {
  await client.sadd('scanned', ...wanted);
  const found = new Set();
  let step = 0;
  for await (const members of client.sscanStream('scanned', { count: 50 })) {
    for (const member of members) found.add(member);
    const passing = Array.from({ length: 200 }, (_, i) => passingName(1000 * step + i));
    await other.sadd('scanned', ...passing);
    await other.srem('scanned', ...passing);
    step += 1;
  }
  for (const member of wanted) assert.ok(found.has(member), member);
  const matching = new Set();
  for await (const members of client.sscanStream('scanned', { match: '*7' })) {
    for (const member of members) matching.add(member);
  }
  assert.deepEqual(matching, new Set(wanted.filter((member) => member.endsWith('7'))));
  await client.del('scanned');
}

// Documents in the order of what is stored beside them.
async function sortedBy(client) {
  const years = new Map(Array.from({ length: 80 }, (_, i) => [String(i), 1900 + ((i * 37) % 80)]));
  await client.sadd('all', ...years.keys());
  await client.mset(new Map([...years].map(([id, year]) => [`year:${id}`, year])));
  const pipeline = client.pipeline();
  for (const [id] of years) pipeline.hset(`document:${id}`, 'title', `title ${id}`);
  await pipeline.exec();
  const wanted = [...years].sort((a, b) => b[1] - a[1]).slice(5, 15);
  assert.deepEqual(await client.sort('all', 'BY', 'year:*', 'LIMIT', 5, 10,
    'GET', '#', 'GET', 'document:*->title', 'DESC'),
  wanted.flatMap(([id]) => [id, `title ${id}`]));
}

// A tag for a while: Kvik's own commands, which the library sends like any other.
async function passingTags(client) {
  await client.sadd('on sale', '1', '2', 'three', 'four');
  assert.deepEqual(await client.call('SPEXPIRE', 'on sale', 60, 'MEMBERS', 3, '2', 'three', '9'),
    [1, 1, -2]);
  await until(async () => (await client.scard('on sale')) === 2);
  assert.deepEqual(sorted(await client.smembers('on sale')), ['1', 'four']);
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
  await check(`${name}: documents sorted by another key`, () => sortedBy(client));
  await check(`${name}: tags for a while`, () => passingTags(client));
});
