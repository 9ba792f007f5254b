"""AgentGym's tool environments: questions and changes that need calls of tools with arguments."""
