"""LangGraph agent as a command; needs the packages `langgraph` and `langchain-openai`."""

from agentgym_jax.programs.task import AgentTask


def play(task):
    """Plays with a graph of two nodes: the model answers, the environment observes."""
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph

    model = ChatOpenAI(
        model=task.model, base_url=task.base_url, api_key=task.api_key, max_retries=0
    )

    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    def act(state):
        result = task.act(state["messages"][-1].content)
        results.append(result)
        return {"messages": [("user", result.observation)]}

    def decide(state):
        return END if results[-1].done or len(results) >= task.max_turns else "think"

    results = []
    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_edge("think", "act")
    graph.add_conditional_edges("act", decide)
    graph.compile().invoke({"messages": [("user", task.reset())]})


if __name__ == "__main__":
    play(AgentTask.from_environ())
