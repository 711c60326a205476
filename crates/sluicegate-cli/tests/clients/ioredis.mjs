// Sends every command with ioredis: alone, in pipelines and in transactions.

import Redis from "ioredis";
import { password, port, run } from "./table.mjs";

const redis = new Redis({ port, password, retryStrategy: null });
const all = (batch, commands) => {
  for (const [name, ...words] of commands) batch.call(name, ...words);
  return batch.exec().then((replies) => replies.map(([error, reply]) => error ?? reply));
};
await run("ioredis", {
  send: ([name, ...words]) => redis.call(name, ...words),
  pipeline: (commands) => all(redis.pipeline(), commands),
  transaction: (commands) => all(redis.multi(), commands),
});
redis.disconnect();
