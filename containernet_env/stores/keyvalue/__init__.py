"""Any service that keeps values by key over HTTP/1.1, of which only URLs are known."""
