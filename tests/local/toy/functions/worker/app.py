"""Writes down every job in the order in which it came; fails those that ask for it."""

import json
import os
import time

import boto3


def handler(event, context):
    failures = []
    for record in event["Records"]:
        job = json.loads(record["body"])
        time.sleep(job.get("seconds", 0))
        boto3.client("dynamodb").update_item(
            TableName=os.environ["TABLE"],
            Key={"pk": {"S": f"jobs-{job['run']}"}, "sk": {"S": record["attributes"]["MessageGroupId"]}},
            UpdateExpression="SET jobs = list_append(if_not_exists(jobs, :none), :job)",
            ExpressionAttributeValues={":none": {"L": []}, ":job": {"L": [{"S": job["name"]}]}},
        )
        if job.get("raise"):
            raise RuntimeError("as wished")
        if job.get("report"):
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
