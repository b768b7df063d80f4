// Numbered checks in the manner of TAP, and where the server is. Not a program of its own.
import assert from 'node:assert/strict';

export const host = process.env.KVIK_HOST ?? '127.0.0.1';
export const port = Number(process.env.KVIK_PORT ?? 6379);
export { assert };

let count = 0;
let failures = 0;

// Runs one check; prints "ok 1 - title" or "not ok 1 - title" with what was wrong.
export async function check(title, work) {
  count += 1;
  try {
    await withTimeLimit(work(), 30000);
    console.log(`ok ${count} - ${title}`);
  } catch (problem) {
    failures += 1;
    console.log(`not ok ${count} - ${title}`);
    console.log(String(problem.stack ?? problem).slice(0, 600).replace(/^/gm, '#   '));
  }
}

function withTimeLimit(promise, limitMs) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${limitMs} ms`)), limitMs);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

// Runs one check after a server with `used` from the beginning: INFO's bytes of data are what they
// were, so nothing that the program did left memory behind. Freeing may go on for a moment.
export async function checkDataset(title, info, used) {
  await check(title, () => until(async () => datasetBytes(await info()) === used));
}

export function datasetBytes(info) {
  return Number(/used_memory_dataset:(\d+)/.exec(info)[1]);
}

// Prints the plan and ends the process.
export function finish() {
  console.log(`1..${count}`);
  process.exit(failures === 0 ? 0 : 1);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Waits until `condition` resolves to true; check() ends what never does.
export async function until(condition) {
  while (!(await condition())) await sleep(3);
}
