// Connections of ioredis and the frame of its programs. Not a program of its own.
import Redis from 'ioredis';
import { checkDataset, datasetBytes, finish, host, port } from './_tap.mjs';

// The forms in which ioredis gives replies: RESP2, what it does by itself, and RESP3's own types.
export const MODES = {
  RESP2: { protocol: 2 },
  RESP3: { protocol: 3 },
  'RESP3 types': { protocol: 3, replyMapping: 'resp3' },
};

export function connect(mode, options = {}) {
  const client = new Redis({
    host, port, retryStrategy: null, maxRetriesPerRequest: 1, ...MODES[mode], ...options,
  });
  client.on('error', (problem) => console.log(`# ${problem}`));
  return client;
}

// Runs `work` in each mode, each time on an empty server. `open` makes further connections, which
// end with the work.
export async function eachProtocol(work) {
  for (const mode of Object.keys(MODES)) {
    const client = connect(mode);
    const others = [];
    const open = async () => {
      const other = connect(mode);
      others.push(other);
      await other.ping();
      return other;
    };
    await client.flushall('SYNC');
    const used = datasetBytes(await client.info('memory'));
    await work({ client, open, name: mode, mode });
    for (const other of others) other.disconnect();
    await client.flushall('SYNC');
    await checkDataset(`${mode}: no byte is left`, () => client.info('memory'), used);
    await client.quit();
  }
  finish();
}

// A member and its score, or a field and its value, are two texts in a row in two of the modes, and
// a pair in the third. Gives pairs.
export function pairs(reply) {
  if (reply.length > 0 && Array.isArray(reply[0])) return reply;
  return Array.from({ length: reply.length / 2 }, (_, i) => [reply[2 * i], reply[2 * i + 1]]);
}

// Likewise with scores as numbers, which are texts in two of the modes.
export function scored(reply) {
  return pairs(reply).map(([member, score]) => [member, Number(score)]);
}
