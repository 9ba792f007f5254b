"""Rules for comparing the forum's database (format: `agentgym_sites/content.py`)."""

from agentgym_sites.content import Content, Table

PRIVATE_CATEGORY = 1  # id of the category of private topics
_TITLE = "(SELECT title FROM spirit_topic_topic AS t WHERE t.id = topic_id)"
# Private topics that all their members have left; they are treated as deleted.
_LEFT_BY_ALL = (
    "SELECT id FROM spirit_topic_topic AS t "
    f"WHERE t.category_id = {PRIVATE_CATEGORY} "
    "AND t.id NOT IN (SELECT topic_id FROM spirit_topic_private_topicprivate)"
)
_OPTION = (
    "(SELECT t.title || ': ' || o.description FROM spirit_comment_poll_commentpollchoice AS o "
    "JOIN spirit_comment_poll_commentpoll AS p ON p.id = o.poll_id "
    "JOIN spirit_comment_comment AS c ON c.id = p.comment_id "
    "JOIN spirit_topic_topic AS t ON t.id = c.topic_id WHERE o.id = choice_id)"
)
_PRIVATE = f"SELECT id FROM spirit_topic_topic WHERE category_id = {PRIVATE_CATEGORY}"
_MENTION = 1  # number of the action "mention" in Spirit
_OWN_TOPICS = (
    "SELECT topic_id FROM spirit_comment_comment AS c "
    "WHERE c.user_id = spirit_topic_notification_topicnotification.user_id"
)

CONTENT: Content = {
    # Ignored: read positions of members, old versions of comments, sessions.
    "django_session": None,
    "spirit_comment_bookmark_commentbookmark": None,
    "spirit_comment_history_commenthistory": None,
    "spirit_topic_unread_topicunread": None,
    "auth_user": Table(free=("last_login",)),
    "spirit_comment_comment": Table(
        free=(
            "comment_html",
            "date",
            "ip_address",
            "is_modified",
            "likes_count",
            "modified_count",
        ),
        named={"topic_id": _TITLE},
        # Rows with another action record operations of moderators and authors on a topic.
        where=f"action = 0 AND topic_id NOT IN ({_LEFT_BY_ALL})",
    ),
    "spirit_comment_like_commentlike": Table(free=("date",)),
    "spirit_comment_poll_commentpollchoice": Table(free=("vote_count",)),
    "spirit_comment_poll_commentpollvote": Table(
        free=("created_at",), named={"choice_id": _OPTION}, where="NOT is_removed"
    ),
    "spirit_topic_favorite_topicfavorite": Table(free=("date",)),
    # Spirit also notifies members who write in a topic or are addressed in it. These rows are not
    # compared.
    "spirit_topic_notification_topicnotification": Table(
        free=("action", "comment_id", "date", "is_read"),
        named={"topic_id": _TITLE},
        where=f"is_active AND action <> {_MENTION} AND topic_id NOT IN ({_OWN_TOPICS}) "
        f"AND topic_id NOT IN ({_PRIVATE})",
    ),
    "spirit_topic_private_topicprivate": Table(free=("date",), named={"topic_id": _TITLE}),
    "spirit_topic_topic": Table(
        free=("comment_count", "date", "last_active", "reindex_at", "slug", "view_count"),
        where=f"id NOT IN ({_LEFT_BY_ALL})",
    ),
    "spirit_user_userprofile": Table(
        free=(
            "comment_count",
            "last_ip",
            "last_post_hash",
            "last_post_on",
            "last_seen",
            "topic_count",
        )
    ),
}
