"""Tests the service at the given port with redis-py. Prints `ok` at the end."""

import sys

import redis

port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, client_name="tests", decode_responses=True)
    assert client.ping() is True
    assert client.echo("hello") == "hello"
    assert client.client_getname() == "tests"
    assert client.info("server")["redis_mode"] == "standalone"
    assert "cl.throttle" in client.command()

    key = f"user-{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    check = client.execute_command("FG.CHECK", "api", "user", key, "cost", 2)
    assert check == [1, 2, 0, 0, 1000, 0, "r", "b0", "allowed"], check
    check = client.execute_command("FG.CHECK", "nope")
    assert check == [1, None, None, 0, 0, 0, None, None, "no_rule"], check

    pipeline = client.pipeline(transaction=False)
    for index in range(1000):
        pipeline.execute_command("CL.THROTTLE", f"pipe-{protocol}", 999, 1, 1000)
    replies = pipeline.execute()
    assert [reply[:3] for reply in replies] == [[0, 1000, 999 - index] for index in range(1000)]

    # A pipeline is a transaction by default, which EXEC charges once.
    pipeline = client.pipeline()
    for index in range(3):
        pipeline.execute_command("CL.THROTTLE", f"multi-{protocol}", 9, 1, 100000)
    pipeline.execute_command("FG.CHECK", "nope")
    replies = pipeline.execute()
    assert [reply[:3] for reply in replies[:3]] == [[0, 10, 9], [0, 10, 8], [0, 10, 7]], replies
    assert replies[3][8] == "no_rule", replies
    # An aborted transaction charges nothing, and the connection stays open.
    pipeline = client.pipeline()
    pipeline.execute_command("CL.THROTTLE", f"multi-{protocol}", 9, 1, 100000)
    pipeline.execute_command("GET", "x")
    try:
        pipeline.execute()
        raise AssertionError("the transaction was run")
    except redis.ResponseError as error:
        assert "unknown command 'GET'" in str(error), error
    peek = client.execute_command("CL.THROTTLE", f"multi-{protocol}", 9, 1, 100000, 0)
    assert peek[:3] == [0, 10, 7], peek
    with client.pipeline() as pipeline:
        try:
            pipeline.watch("x")
            raise AssertionError("the key is watched")
        except redis.ResponseError as error:
            assert "WATCH is not supported" in str(error), error

    # An invalid command affects neither the rest of the pipeline nor the connection.
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command("CL.THROTTLE", key)
    pipeline.ping()
    error, pong = pipeline.execute(raise_on_error=False)
    assert isinstance(error, redis.ResponseError), error
    assert str(error) == "wrong number of arguments for 'cl.throttle' command", error
    assert pong is True
    client.close()

    pool = redis.ConnectionPool.from_url(f"redis://default:any@127.0.0.1:{port}/0?protocol={protocol}")
    assert redis.Redis(connection_pool=pool).ping() is True
    pool.disconnect()
print("ok")
