"""The local stack: deploys ``template.yaml`` into moto and serves it, one fresh process an invocation.

Run it with ``python -m local`` from the checkout's root; tests use :class:`local.stack.LocalStack`.
"""
