"""Marks the item as resumed, in a process of its own."""

import os

import boto3


def handler(event, context):
    boto3.client("dynamodb").update_item(
        TableName=os.environ["TABLE"],
        Key={name: {"S": value} for name, value in event["key"].items()},
        UpdateExpression="SET #status = :resumed, said = :said",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":resumed": {"S": "resumed"}, ":said": {"S": event["said"]}},
    )
    return {"resumed": event["said"], "pid": os.getpid()}
