"""Does what the event's `do` says, so that tests can make a function behave in every way there is."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import boto3
import toyagent
import toyshared

MADE_IN = os.getpid()


def handler(event, context):
    wish = event.get("do") or _from_http(event)
    print(f"wish {wish}")
    return globals()[f"do_{wish}"](event, context)


def _from_http(event):
    if event.get("rawPath") == "/act" and event.get("body") and not event["isBase64Encoded"]:
        wish = json.loads(event["body"])
        event.update(wish)
        return wish["do"]
    return "echo"


def do_echo(event, context):
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}


def do_plain(event, context):
    return {"plain": True}


def do_answer(event, context):
    return event["answer"]


def do_facts(event, context):
    return {
        "pid": os.getpid(),
        "made_in": MADE_IN,
        "environment": dict(os.environ),
        "path": sys.path,
        "cwd": str(Path.cwd()),
        "names": [toyshared.NAME, toyagent.NAME],
        "modules": sorted(name for name in sys.modules if name.split(".")[0] in ("local", "turnkeep")),
        "threads": threading.active_count(),
        "context": {
            "aws_request_id": context.aws_request_id,
            "function_name": context.function_name,
            "memory_limit_in_mb": context.memory_limit_in_mb,
            "invoked_function_arn": context.invoked_function_arn,
            "remaining_ms": context.get_remaining_time_in_millis(),
        },
    }


def do_sleep(event, context):
    time.sleep(event["seconds"])
    return {"slept": event["seconds"], "pid": os.getpid()}


def do_raise(event, context):
    raise ValueError("as wished")


def do_exit(event, context):
    os._exit(event["code"])


def do_sys_exit(event, context):
    sys.exit(event["code"])


def do_die(event, context):
    os.kill(os.getpid(), getattr(signal, event["signal"]))
    time.sleep(10)


def do_set(event, context):
    return {"values": {1, 2}}


def do_large(event, context):
    return "x" * event["bytes"]


def do_size(event, context):
    return {"bytes": len(event["filler"])}


def do_child(event, context):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(f"child {child.pid}")
    time.sleep(event["seconds"])
    return {"child": child.pid}


def do_thread(event, context):
    threading.Thread(target=time.sleep, args=(30,)).start()
    return {"pid": os.getpid()}


def do_put(event, context):
    client = boto3.client("dynamodb")
    client.put_item(TableName=os.environ["TABLE"], Item={"pk": {"S": event["pk"]}, "sk": {"S": "x"}})
    client.get_item(TableName=os.environ["TABLE"], Key={"pk": {"S": event["pk"]}, "sk": {"S": "x"}})
    return {"statusCode": 201, "body": "made"}


def do_crash_point(event, context):
    if os.environ.get("CRASH_POINT") == "here":
        os._exit(70)
    return {"survived": True}
