"""The local console: a page that shows what the local stack does, and lets a person try it.

``make run`` serves it beside the API; it belongs to the local stack only, and no Lambda package contains it. Facts are
read from the ledger, the executions and the stack's own control paths; everything that changes something goes over the
HTTP API, as a real caller's request would.
"""
