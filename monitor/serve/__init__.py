"""What `monitor mcp` serves to coding agents: tools, resources and prompts."""
