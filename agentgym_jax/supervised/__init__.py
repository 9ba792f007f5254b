"""Training on recorded episodes: SFT, DPO and AgentEvol."""
