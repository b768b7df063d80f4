// Connections of node-redis and the frame of its programs. Not a program of its own.
import { createClient } from 'redis';
import { checkDataset, datasetBytes, finish, host, port } from './_tap.mjs';

export async function connect(RESP, options = {}) {
  const client = createClient({ RESP, socket: { host, port, reconnectStrategy: false }, ...options });
  client.on('error', (problem) => console.log(`# ${problem}`));
  await client.connect();
  return client;
}

// Runs `work` over RESP2 and over RESP3, each on an empty server. `open` makes further connections,
// which end with the work.
export async function eachProtocol(work) {
  for (const RESP of [2, 3]) {
    const name = `RESP${RESP}`;
    const client = await connect(RESP);
    const others = [];
    const open = async () => {
      const other = await connect(RESP);
      others.push(other);
      return other;
    };
    await client.flushAll('SYNC');
    const used = datasetBytes(await client.info('memory'));
    await work({ client, open, name, mode: RESP });
    for (const other of others) if (other.isOpen) other.destroy();
    await client.flushAll('SYNC');
    await checkDataset(`${name}: no byte is left`, () => client.info('memory'), used);
    await client.close();
  }
  finish();
}
