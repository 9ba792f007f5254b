"""Names of the forum's members, and texts of their comments."""

# Names of members are all pairs of a first and a second word.
FIRST = "quiet brass copper lucky north paper river silver tiny velvet".split()
SECOND = "badger fox heron lantern maple otter pebble sparrow wagon".split()
AGENT = "copper_otter"  # member who is logged in
PASSWORD = "harbour-2024"
MODERATOR = "moderator"
SITE_NAME = "Harbour Forum"

# Comments that open a topic, by kind of topic.
OPENINGS = {
    "advice": (
        "I have tried for a month and would like to hear what works for you.",
        "I found nothing newer than two years here, so I am asking again.",
        "A neighbour told me that this forum knows everything, so here I am.",
        "Please be patient with me, I am still a beginner.",
        "Maybe somebody has had the same problem.",
        "My grandfather would have known, but I cannot ask him any more.",
        "I have read three books about it and they all say something different.",
    ),
    "choice": (
        "Mine broke last week. Please tell me what you have and what you paid for it.",
        "I would like to give one as a present. What do you use, and what did it cost?",
        "There are too many on the market. Which one do you own?",
        "I have borrowed one for years and want my own now. Prices would help, too.",
        "The shop recommended the most expensive one. What do you use?",
    ),
    "diary": (
        "I promised to report, so here is the truth.",
        "Nobody believed that I would keep it up. Here are my notes so far.",
        "More went wrong than right, but I am learning something every day.",
        "I will add to this topic from time to time.",
        "It takes more time than I thought and it is more fun than I hoped.",
        "I am writing this down mainly for myself, but questions are welcome.",
    ),
    "meeting": (
        "It is time to meet again. Who would come, and when would it suit you?",
        "Several members asked for a meeting. Please tell us when you have time.",
        "Last time there were twelve of us. Let us find a day that suits most.",
    ),
    "poll": (
        "Please vote, we will do what most of us want.",
        "We could not agree at the last meeting, so everybody may vote here.",
        "You have one vote each, and the poll stays open until the next meeting.",
    ),
}
# Replies that fit every topic of a kind. Topics that ask for advice also get the category's tips.
REPLIES = {
    "advice": (
        "Thank you for asking, I wanted to know that, too.",
        "I wondered about the same thing last year.",
        "Ask at the next meeting, somebody there will know.",
        "Everybody will tell you something else, so try it and report back.",
        "There was a good talk about this in autumn, maybe they repeat it.",
        "The library has a book about exactly this.",
    ),
    "choice": (
        "I have tried several and cannot say that the price makes a difference.",
        "Buy a used one first and find out what you really need.",
        "The shop at the harbour lets you try them before you buy.",
        "Whatever you choose, keep the receipt.",
        "You can borrow one from the town library of things.",
        "I am looking for one as well, so thank you for all the answers.",
    ),
    "diary": (
        "Thank you for writing this up, it makes me want to try it myself.",
        "Please go on, I read every report.",
        "I gave up after a week, so I admire your patience.",
        "Do you have pictures?",
        "How much time does it take you in a normal week?",
        "The beginning is the hardest part, it gets better.",
        "You should show this at the next meeting.",
        "My daughter wants to start the same thing now.",
        "What would you do differently if you started again?",
        "I did this ten years ago and still think about it.",
        "Be honest, was there a day when you wanted to stop?",
    ),
    "meeting": (
        "Count me in.",
        "I will bring tea and a cake.",
        "Is there a place to leave bicycles?",
        "I can take two people along in the car.",
        "I may be a little late, please do not wait for me.",
        "Last time was lovely, thank you for organising it again.",
        "May I bring my brother? He is new in town.",
        "I cannot come this time. Please take some pictures.",
        "If it rains, we can use the room next door.",
    ),
    "poll": (
        "Good choices, I would enjoy any of them.",
        "I voted for the one that we have never done before.",
        "Whatever wins, I can help with the preparations.",
        "Can we do the second one in autumn?",
        "It should be something that beginners can join.",
        "My favourite is losing, please vote!",
        "We did something similar three years ago and it was a great day.",
    ),
}
