"""What a turn costs, measured: capacity units by DynamoDB's documented rules, bytes of requests, round trips."""
