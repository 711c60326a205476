"""Sends every command with redis-py, over RESP2 and RESP3: alone, in pipelines and in transactions."""

import json
import os

import redis

PORT = int(os.environ["SLUICE_PORT"])
with open(os.environ["SLUICE_COMMANDS"]) as file:
    TABLE = json.load(file)
sent = set()


def connect(protocol, **options):
    client = redis.Redis(
        port=PORT, password="sesame", protocol=protocol, decode_responses=True, **options
    )
    # Replies as the server sends them.
    client.response_callbacks.clear()
    return client


def matches(expected, got):
    if expected == "*":
        return True
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(map(matches, expected, got))
        )
    return expected == got


def check(entry, words, got):
    """Compares a reply, or an error, with the table."""
    if "error" in entry:
        assert isinstance(got, redis.ResponseError), (words, got)
        # redis-py turns the code of some errors into a class.
        matched = matches(entry["error"], str(got)) or entry["error"].endswith(str(got))
    else:
        matched = not isinstance(got, Exception) and matches(entry["reply"], got)
    assert matched, f"{words}: {got!r} instead of {entry}"


def send(client, *words):
    sent.add(words[0])
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return error


def alone(protocol):
    client = connect(protocol, single_connection_client=True)
    receipt = None
    for entry in TABLE:
        words = fill(entry, f"py-{protocol}", receipt)
        got = send(client, *words)
        check(entry, words, got)
        if "receipt" in entry:
            receipt = got[entry["receipt"]]
    # A transaction by hand.
    for words, reply in [
        (["MULTI"], "OK"),
        (["PING"], "QUEUED"),
        (["EXEC"], ["PONG"]),
        (["MULTI"], "OK"),
        (["DISCARD"], "OK"),
        (["RESET"], "RESET"),
        (["QUIT"], "OK"),
    ]:
        assert send(client, *words) == reply, words
    assert send(connect(protocol), "RL.PEEK", "reply", "x")[2] == 5


def fill(entry, key, receipt):
    return [{"$key": key, "$receipt": receipt}.get(word, word) for word in entry["send"]]


def together(protocol, transaction):
    """One pipeline of all commands that need no receipt of another."""
    entries = [entry for entry in TABLE if "$receipt" not in entry["send"]]
    commands = [fill(entry, f"py-{protocol}-{transaction}", None) for entry in entries]
    pipeline = connect(protocol).pipeline(transaction=transaction)
    for words in commands:
        pipeline.execute_command(*words)
    replies = pipeline.execute(raise_on_error=False)
    assert len(replies) == len(commands)
    for entry, words, got in zip(entries, commands, replies):
        check(entry, words, got)


def transactions(protocol):
    client = connect(protocol)
    # Nothing is charged if one command cannot be queued.
    pipeline = client.pipeline()
    pipeline.execute_command("RL.CHECK", "reply", f"none-{protocol}")
    pipeline.execute_command("RL.CHECK")
    try:
        pipeline.execute()
        raise AssertionError("a command without arguments was queued")
    except redis.ResponseError as error:
        assert "wrong number of arguments for 'rl.check' command" in str(error), error
    assert send(client, "RL.PEEK", "reply", f"none-{protocol}")[2] == 5
    # An error while running does not stop the others.
    pipeline.execute_command("RL.CHECK", "nope", "x")
    pipeline.execute_command("RL.CHECK", "reply", f"none-{protocol}")
    try:
        pipeline.execute()
        raise AssertionError("there is no rule nope")
    except redis.ResponseError as error:
        assert 'no rule is called "nope"' in str(error), error
    assert send(client, "RL.PEEK", "reply", f"none-{protocol}")[2] == 4
    try:
        client.pipeline().watch("key")
        raise AssertionError("keys are not watched")
    except redis.ResponseError as error:
        assert "WATCH is not supported" in str(error), error


def methods(protocol):
    """What redis-py makes of the replies to commands that it knows."""
    client = redis.Redis(port=PORT, password="sesame", protocol=protocol, decode_responses=True)
    assert client.ping() is True
    assert client.echo("hello") == "hello"
    assert client.client_setname("name") is True
    assert client.client_getname() is not None
    assert isinstance(client.client_id(), int)
    assert "lib-name" in client.client_info()
    assert client.info("replication")["role"] == "master"
    assert client.config_get("appendonly") == {"appendonly": "no"}
    assert client.command_count() == len(client.command())
    assert "rl.check" in client.command_list()
    assert client.pipeline().ping().echo("a").execute() == [True, "a"]


for protocol in (2, 3):
    alone(protocol)
    for transaction in (False, True):
        together(protocol, transaction)
    transactions(protocol)
    methods(protocol)
listed = {name.upper() for name in connect(2).execute_command("COMMAND", "LIST")}
assert sent >= listed, f"commands that no line sends: {sorted(listed - sent)}"
print(f"redis-py {redis.__version__}: {len(listed)} commands over RESP2 and RESP3")
