"""How a Lambda event becomes a use case and its outcome a reply."""
