"""The local web app: label, curate and audit in a browser, and the API behind it."""
