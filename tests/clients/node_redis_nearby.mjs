// A search for what is nearby on node-redis: places all over the world, clusters of them in cities, on
// both sides of the date line and in the far north; compared with distances the program computes.
import { eachProtocol } from './_node_redis.mjs';
import { Random, distanceM, inBox, nearby, randomPlaces } from './_models.mjs';
import { assert, check } from './_tap.mjs';

const random = new Random();

// Stores places and takes their positions as the server keeps them, on a grid of half a metre.
async function settle(client, key, count) {
  const places = randomPlaces(random, count);
  assert.equal(await client.geoAdd(key, places), count);
  const positions = await client.geoPos(key, places.map(({ member }) => member));
  return places.map((place, i) => {
    const stored = { longitude: Number(positions[i].longitude),
      latitude: Number(positions[i].latitude) };
    assert.ok(distanceM(place, stored) < 1, place.member);
    return { member: place.member, ...stored };
  });
}

async function radius(client, key, places) {
  for (const km of [0.5, 5, 20, 300, 3000]) {
    const centre = random.pick(places);
    const wanted = nearby(places, centre, km * 1000);
    const by = { radius: km, unit: 'km' };
    assert.deepEqual(await client.geoSearch(key, centre.member, by, { SORT: 'ASC' }), wanted);
    assert.deepEqual(await client.geoSearch(key, centre,
      { radius: km * 1000, unit: 'm' }, { SORT: 'DESC' }), wanted.toReversed());
    assert.deepEqual(await client.geoSearch(key, centre.member, by, { COUNT: 3 }),
      wanted.slice(0, 3));
    const any = await client.geoSearch(key, centre.member, by, { COUNT: { value: 4, ANY: true } });
    assert.equal(any.length, Math.min(4, wanted.length));
    assert.ok(any.every((member) => wanted.includes(member)));
    const box = { width: 2 * km, height: km, unit: 'km' };
    assert.deepEqual(await client.geoSearch(key, centre.member, box, { SORT: 'ASC' }),
      inBox(places, centre, 2000 * km, 1000 * km));
  }
}

async function details(client, key, places) {
  const centre = random.pick(places);
  const found = await client.geoSearchWith(key, centre.member, { radius: 50, unit: 'km' },
    ['WITHDIST', 'WITHCOORD', 'WITHHASH'], { SORT: 'ASC' });
  assert.equal(found[0].member, centre.member);
  assert.equal(Number(found[0].distance), 0);
  for (const { member, distance, coordinates, hash } of found) {
    const place = places.find((one) => one.member === member);
    assert.ok(Math.abs(Number(distance) * 1000 - distanceM(centre, place)) < 0.1, member);
    assert.equal(Number(coordinates.longitude), place.longitude);
    assert.equal(Number(coordinates.latitude), place.latitude);
    assert.equal(Number(hash), await client.zScore(key, member));
  }
  const [one, other] = [random.pick(places), random.pick(places)];
  for (const [unit, metres] of [['m', 1], ['km', 1000], ['mi', 1609.34], ['ft', 0.3048]]) {
    const distance = await client.geoDist(key, one.member, other.member, unit);
    assert.ok(Math.abs(distance * metres - distanceM(one, other)) < 0.2, unit);
  }
  assert.equal(await client.geoDist(key, one.member, 'nowhere'), null);
  assert.deepEqual(await client.geoPos(key, 'nowhere'), [null]);
  const [hash, none] = await client.geoHash(key, [one.member, 'nowhere']);
  assert.match(hash, /^[0-9b-hjkmnp-z]{11}$/);
  assert.equal(none, null);
}

async function stored(client, key, places) {
  const centre = random.pick(places);
  const wanted = nearby(places, centre, 15000);
  const by = { radius: 15, unit: 'km' };
  assert.equal(await client.geoSearchStore('near', key, centre.member, by), wanted.length);
  assert.deepEqual(await client.geoSearch('near', centre, by, { SORT: 'ASC' }), wanted);
  assert.equal(await client.geoSearchStore('far', key, centre.member, by, { STOREDIST: true }),
    wanted.length);
  assert.deepEqual(await client.zRange('far', 0, -1), wanted);
  assert.equal(await client.zRem(key, wanted), wanted.length);
  assert.deepEqual(await client.geoSearch(key, centre, by), []);
  assert.equal(await client.geoSearchStore('far', key, centre, by), 0);
  assert.equal(await client.exists('far'), 0);
}

// A courier on the way: its place changes, and it is found where it is.
async function moving(client) {
  const at = (step) => ({ member: 'courier', longitude: 13 + step / 50, latitude: 52.5 });
  const near = (step) => client.geoSearch('couriers', at(step), { radius: 500, unit: 'm' });
  assert.equal(await client.geoAdd('couriers', at(0)), 1);
  for (let step = 1; step < 20; step += 1) {
    assert.equal(await client.geoAdd('couriers', at(step), { condition: 'XX', CH: true }), 1);
    assert.deepEqual(await near(step - 1), []);
    assert.deepEqual(await near(step), ['courier']);
  }
  assert.equal(await client.geoAdd('couriers', at(0), { condition: 'NX' }), 0);
  await assert.rejects(client.geoAdd('couriers', { member: 'x', longitude: 181, latitude: 0 }),
    /invalid longitude,latitude pair/);
  assert.equal(await client.zCard('couriers'), 1);
}

await eachProtocol(async ({ client, name }) => {
  for (const count of [100, 1500]) {
    const key = `places ${count}`;
    let places;
    await check(`${name}: ${count} places are where they were put`, async () => {
      places = await settle(client, key, count);
    });
    await check(`${name}: ${count} places by distance`, async () => {
      for (let round = 0; round < 10; round += 1) await radius(client, key, places);
    });
    await check(`${name}: ${count} places with details`, () => details(client, key, places));
    await check(`${name}: ${count} places, results stored`, () => stored(client, key, places));
  }
  await check(`${name}: a place that moves`, () => moving(client));
});
