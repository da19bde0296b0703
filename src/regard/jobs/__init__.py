"""Works through very much text in shards that are never made twice; learns shortlists."""
