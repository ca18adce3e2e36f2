"""Counts what it is woken by."""

import json
import os

import boto3


def handler(event, context):
    print("tick " + json.dumps(event))
    boto3.client("dynamodb").update_item(
        TableName=os.environ["TABLE"],
        Key={"pk": {"S": "ticks"}, "sk": {"S": event.get("detail-type", "none")}},
        UpdateExpression="SET seen = if_not_exists(seen, :zero) + :one, latest = :event",
        ExpressionAttributeValues={":zero": {"N": "0"}, ":one": {"N": "1"}, ":event": {"S": json.dumps(event)}},
    )
    if event.get("detail", {}).get("fail"):
        raise RuntimeError("as wished")
