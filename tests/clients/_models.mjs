// What the programs know themselves, in the most obvious way: random numbers that can be repeated, a
// table of scores, sets, distances on a globe. Not a program of its own.
//
// SEED=N in the environment repeats a run; each program that asks for numbers prints its own.

export class Random {
  constructor() {
    this.state = Number(process.env.SEED ?? 1 + Math.floor(Math.random() * 0x7ffffffe)) | 0;
    console.log(`# SEED=${this.state}`);
  }

  // A whole number from 0 to limit - 1: xorshift.
  below(limit) {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    return (this.state >>> 0) % limit;
  }

  // A number from low to high, the latter excluded.
  between(low, high) {
    return low + (this.below(1 << 30) / (1 << 30)) * (high - low);
  }

  pick(list) {
    return list[this.below(list.length)];
  }
}

// Members with scores; ranked from the lowest, and among equals by name. Names are ASCII, so that
// JavaScript's order is that of bytes.
export class Board {
  scores = new Map();

  // Pairs of member and score; `reverse` turns the whole order, ties included.
  ranked(reverse = false) {
    const all = [...this.scores].sort(([nameA, a], [nameB, b]) =>
      a - b || (nameA < nameB ? -1 : 1));
    return reverse ? all.reverse() : all;
  }

  rank(member, reverse = false) {
    return this.ranked(reverse).findIndex(([name]) => name === member);
  }
}

export const sorted = (items) => [...items].sort();
export const intersection = (...sets) =>
  new Set([...sets[0]].filter((item) => sets.every((set) => set.has(item))));
export const union = (...sets) => new Set(sets.flatMap((set) => [...set]));
export const difference = (first, ...others) =>
  new Set([...first].filter((item) => !others.some((set) => set.has(item))));

// Metres between two places {longitude, latitude} in degrees, on the globe that Redis assumes.
export function distanceM(a, b) {
  const radians = (degrees) => (degrees * Math.PI) / 180;
  const sinus = (angle) => Math.sin(angle / 2) ** 2;
  const [latitudeA, latitudeB] = [radians(a.latitude), radians(b.latitude)];
  return 2 * 6372797.560856 * Math.asin(Math.sqrt(sinus(latitudeB - latitudeA)
    + Math.cos(latitudeA) * Math.cos(latitudeB) * sinus(radians(b.longitude - a.longitude))));
}

// Places all over the world, some within kilometres of each other, some beside the date line.
export function randomPlaces(random, count) {
  const centres = [[13.4, 52.5], [179.9, -17], [-179.9, -16.8], [0, 0], [-70, 69], [103.8, 1.3]];
  return Array.from({ length: count }, (_, number) => {
    const [longitude, latitude] = random.pick(centres);
    const place = random.below(4) === 0
      ? { longitude: random.between(-180, 180), latitude: random.between(-85, 85) }
      : { longitude: longitude + random.between(-0.1, 0.1),
        latitude: latitude + random.between(-0.1, 0.1) };
    return { member: `place ${number}`, ...place };
  });
}

// Names of the places within a radius, nearest first.
export function nearby(places, centre, radiusM) {
  return places.map((place) => ({ ...place, metres: distanceM(centre, place) }))
    .filter(({ metres }) => metres <= radiusM).sort((a, b) => a.metres - b.metres)
    .map(({ member }) => member);
}

// Likewise within a box, whose width is measured at the place's own latitude.
export function inBox(places, centre, widthM, heightM) {
  const inside = places.filter(({ longitude, latitude }) =>
    distanceM(centre, { ...centre, latitude }) <= heightM / 2
    && distanceM({ longitude, latitude }, { longitude: centre.longitude, latitude }) <= widthM / 2);
  return nearby(inside, centre, Infinity);
}
