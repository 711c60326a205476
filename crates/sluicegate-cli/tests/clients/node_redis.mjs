// Sends every command with node-redis, over RESP2 and RESP3: alone, in pipelines and in
// transactions.

import { createClient } from "redis";
import { password, port, run } from "./table.mjs";

for (const RESP of [2, 3]) {
  const client = createClient({ RESP, password, socket: { port, reconnectStrategy: false } });
  client.on("error", () => {});
  await client.connect();
  await run(`node-redis over RESP${RESP}`, {
    send: (words) => client.sendCommand(words),
    // Commands that are sent without waiting for a reply share a pipeline.
    pipeline: (commands) =>
      Promise.all(commands.map((words) => client.sendCommand(words).catch((error) => error))),
    // An error among the replies is thrown with all of them.
    transaction: (commands) =>
      commands
        .reduce((multi, words) => multi.addCommand(words), client.multi())
        .exec()
        .catch((error) => error.replies ?? Promise.reject(error)),
  });
  if (client.isOpen) client.destroy();
}
