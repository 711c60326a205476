// The table of commands, and how a client for Node.js goes through it: alone, in pipelines and in
// transactions. A client is given by functions.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const table = JSON.parse(readFileSync(process.env.SLUICE_COMMANDS, "utf8"));
export const port = Number(process.env.SLUICE_PORT);
export const password = "sesame";

function matches(expected, got) {
  if (expected === "*") return true;
  if (!Array.isArray(expected)) return expected === got;
  return (
    Array.isArray(got) &&
    got.length === expected.length &&
    expected.every((item, index) => matches(item, got[index]))
  );
}

// Compares a reply, or an error, with the table.
function check(entry, words, got) {
  const text = `${words.join(" ")}: ${got instanceof Error ? got.message : JSON.stringify(got)}`;
  if ("error" in entry) {
    assert(got instanceof Error, text);
    assert(entry.error === "*" || got.message.endsWith(entry.error), text);
  } else {
    assert(!(got instanceof Error) && matches(entry.reply, got), text);
  }
}

function fill(entry, key, receipt) {
  return entry.send.map((word) => ({ $key: key, $receipt: receipt })[word] ?? word);
}

const caught = (promise) => promise.catch((error) => error);

// `send(words)` is the reply to one command, on one connection. `pipeline(commands)` and
// `transaction(commands)` are a list of replies and errors.
export async function run(name, { send, pipeline, transaction }) {
  const sent = new Set();
  const ask = (...words) => {
    sent.add(words[0]);
    return caught(send(words));
  };
  let receipt;
  for (const entry of table) {
    const words = fill(entry, name, receipt);
    const got = await ask(...words);
    check(entry, words, got);
    if ("receipt" in entry) receipt = got[entry.receipt];
  }
  const entries = table.filter((entry) => !entry.send.includes("$receipt"));
  for (const together of [pipeline, transaction]) {
    const commands = entries.map((entry) => fill(entry, `${name}-${together.name}`));
    const replies = await together(commands);
    assert.equal(replies.length, commands.length);
    entries.forEach((entry, index) => check(entry, commands[index], replies[index]));
  }
  // Nothing is charged if one command cannot be queued.
  const failed = await caught(transaction([["RL.CHECK", "reply", "none"], ["RL.CHECK"]]));
  // Clients report the error of EXEC or that of the command.
  assert(failed instanceof Error && /^EXECABORT|wrong number/.test(failed.message), String(failed));
  assert.equal((await ask("RL.PEEK", "reply", "none"))[2], 5);
  // A transaction by hand.
  for (const [command, reply] of [
    ["MULTI", "OK"],
    ["PING", "QUEUED"],
    ["EXEC", ["PONG"]],
    ["MULTI", "OK"],
    ["DISCARD", "OK"],
  ]) {
    assert.deepEqual(await ask(command), reply, command);
  }
  const listed = (await ask("COMMAND", "LIST")).map((command) => command.toUpperCase());
  assert.equal(await ask("RESET"), "RESET");
  assert.equal(await ask("QUIT"), "OK");
  const missing = listed.filter((command) => !sent.has(command));
  assert.deepEqual(missing, [], "commands that no line sends");
  console.log(`${name}: ${listed.length} commands`);
}
