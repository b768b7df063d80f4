// A search for what is nearby on ioredis: places all over the world, clusters of them in cities, on both
// sides of the date line and in the far north; compared with distances the program computes.
import { eachProtocol } from './_ioredis.mjs';
import { Random, distanceM, inBox, nearby, randomPlaces } from './_models.mjs';
import { assert, check } from './_tap.mjs';

const random = new Random();

// Stores places and takes their positions as the server keeps them, on a grid of half a metre.
async function settle(client, key, count) {
  const places = randomPlaces(random, count);
  assert.equal(await client.geoadd(key,
    ...places.flatMap(({ longitude, latitude, member }) => [longitude, latitude, member])), count);
  const positions = await client.geopos(key, ...places.map(({ member }) => member));
  return places.map((place, i) => {
    const [longitude, latitude] = positions[i].map(Number);
    assert.ok(distanceM(place, { longitude, latitude }) < 1, place.member);
    return { member: place.member, longitude, latitude };
  });
}

async function radius(client, key, places) {
  for (const km of [0.5, 5, 20, 300, 3000]) {
    const centre = random.pick(places);
    const { member, longitude, latitude } = centre;
    const wanted = nearby(places, centre, km * 1000);
    const pipeline = client.pipeline();
    pipeline.geosearch(key, 'FROMMEMBER', member, 'BYRADIUS', km, 'km', 'ASC');
    pipeline.geosearch(key, 'FROMLONLAT', longitude, latitude, 'BYRADIUS', km * 1000, 'm', 'DESC');
    pipeline.georadius(key, longitude, latitude, km, 'km', 'ASC');
    pipeline.georadius_ro(key, longitude, latitude, km, 'km', 'COUNT', 3);
    pipeline.georadiusbymember(key, member, km, 'km', 'DESC');
    pipeline.geosearch(key, 'FROMMEMBER', member, 'BYBOX', 2 * km, km, 'km', 'ASC');
    const replies = await pipeline.exec();
    assert.deepEqual(replies.map(([problem]) => problem), Array(6).fill(null));
    assert.deepEqual(replies.map(([, reply]) => reply), [
      wanted, wanted.toReversed(), wanted, wanted.slice(0, 3), wanted.toReversed(),
      inBox(places, centre, 2000 * km, 1000 * km)]);
    const any = await client.geosearch(key, 'FROMMEMBER', member, 'BYRADIUS', km, 'km',
      'COUNT', 4, 'ANY');
    assert.equal(any.length, Math.min(4, wanted.length));
    assert.ok(any.every((one) => wanted.includes(one)));
  }
}

async function details(client, key, places) {
  const centre = random.pick(places);
  const found = await client.geosearch(key, 'FROMMEMBER', centre.member, 'BYRADIUS', 50, 'km', 'ASC',
    'WITHDIST', 'WITHHASH', 'WITHCOORD');
  assert.equal(found[0][0], centre.member);
  for (const [member, distance, hash, [longitude, latitude]] of found) {
    const place = places.find((one) => one.member === member);
    assert.ok(Math.abs(Number(distance) * 1000 - distanceM(centre, place)) < 0.1, member);
    assert.ok(distanceM({ longitude, latitude }, place) < 1e-3);
    assert.equal(hash, Number(await client.zscore(key, member)));
  }
  const [one, other] = [random.pick(places), random.pick(places)];
  for (const [unit, metres] of [['m', 1], ['km', 1000], ['mi', 1609.34], ['ft', 0.3048]]) {
    const distance = await client.geodist(key, one.member, other.member, unit);
    assert.ok(Math.abs(distance * metres - distanceM(one, other)) < 0.2, unit);
  }
  assert.equal(await client.geodist(key, one.member, 'nowhere'), null);
  assert.deepEqual(await client.geopos(key, 'nowhere'), [null]);
  const [hash, none] = await client.geohash(key, one.member, 'nowhere');
  assert.match(hash, /^[0-9b-hjkmnp-z]{11}$/);
  assert.equal(none, null);
}

async function stored(client, key, places) {
  const centre = random.pick(places);
  const wanted = nearby(places, centre, 15000);
  const around = ['FROMLONLAT', centre.longitude, centre.latitude, 'BYRADIUS', 15, 'km'];
  assert.equal(await client.geosearchstore('near', key, ...around), wanted.length);
  assert.deepEqual(await client.geosearch('near', ...around, 'ASC'), wanted);
  assert.equal(await client.georadiusbymember(key, centre.member, 15, 'km', 'STOREDIST', 'far'),
    wanted.length);
  assert.deepEqual(await client.zrange('far', 0, -1), wanted);
  assert.equal(await client.zrem(key, ...wanted), wanted.length);
  assert.deepEqual(await client.geosearch(key, ...around), []);
  assert.equal(await client.geosearchstore('far', key, ...around), 0);
  assert.equal(await client.exists('far'), 0);
}

// A courier on the way: its place changes, and it is found where it is.
async function moving(client) {
  const at = (step) => [13 + step / 50, 52.5];
  const near = (step) =>
    client.geosearch('couriers', 'FROMLONLAT', ...at(step), 'BYRADIUS', 500, 'm');
  assert.equal(await client.geoadd('couriers', ...at(0), 'courier'), 1);
  for (let step = 1; step < 20; step += 1) {
    assert.equal(await client.geoadd('couriers', 'XX', 'CH', ...at(step), 'courier'), 1);
    assert.deepEqual(await near(step - 1), []);
    assert.deepEqual(await near(step), ['courier']);
  }
  assert.equal(await client.geoadd('couriers', 'NX', ...at(0), 'courier'), 0);
  await assert.rejects(client.geoadd('couriers', 0, 86, 'x'), /invalid longitude,latitude pair/);
  assert.equal(await client.zcard('couriers'), 1);
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
