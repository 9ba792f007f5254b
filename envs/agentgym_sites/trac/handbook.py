"""Short pages that replace Trac's handbook, to which every page of Trac links.

Trac's own handbook is long and written for administrators. These pages contain what users need.
"""

PAGES: dict[str, str] = {
    "TracGuide": """= Handbook =

 * TracWiki: pages that everybody can edit
 * WikiFormatting: how to write them
 * TracTickets: defects, enhancements and tasks
 * TracQuery: lists of tickets by their fields
 * TracReports: lists of tickets that somebody has saved
 * TracRoadmap: milestones and how much of them is done
 * TracTimeline: what happened lately
 * TracSearch: words in tickets, pages and milestones
""",
    "TracWiki": """= The wiki =

Every page has a name and can be edited by everybody who is logged in: press "Edit this page" at its
end. The history of a page shows who changed what. See WikiFormatting for the markup.
""",
    "WikiFormatting": """= Markup =

|| `= Title =` || a heading ||
|| `'''bold'''` || bold words ||
|| ` * item` || a list ||
|| ` 1. item` || a numbered list ||
|| `#12` || a link to ticket 12 ||
|| `[wiki:TracGuide the handbook]` || a link to a page ||
""",
    "WikiDeletePage": """= Deleting pages =

A page can be deleted by administrators only. Ask in the channel of your project.
""",
    "TracTickets": """= Tickets =

A ticket is a defect, an enhancement or a task. Its fields are in the table on top, its history is below.

 * It is '''new''' until its owner accepts it.
 * Then it is '''accepted''' until it is resolved.
 * A resolved ticket is '''closed''' with a resolution: fixed, invalid, wontfix, duplicate or worksforme.
 * A closed ticket can be '''reopened'''.

Comments, fields and the next status are in one form: open "Modify Ticket" and press "Submit changes".
""",
    "TracQuery": """= Queries =

"Custom Query" lists the tickets whose fields have the values that you choose. Add filters with the
boxes named "And" and "Or", then press "Update".

== Query language == #QueryLanguage

A query can stand in a page: `[query:status=new&component=Kiln]`. Fields are separated by `&`,
alternatives by `|`.

== Links to queries == #UsingTracLinks

`[query:owner=robin.hale my tickets]` is a link to the list of somebody's tickets.
""",
    "TracReports": """= Reports =

A report is a query that somebody has saved. "View Tickets" lists all reports. Reports cannot be changed
here; use a query of your own instead, see TracQuery.
""",
    "TracRoadmap": """= Roadmap =

The roadmap lists the milestones that are not completed. The bar of a milestone shows how many of its
tickets are closed. The page of a milestone groups them by a field of your choice.
""",
    "TracTimeline": """= Timeline =

The timeline lists what happened to tickets, pages and milestones, day by day, newest first.
""",
    "TracSearch": """= Search =

The search finds all words of a text in tickets, pages and milestones. Put words that belong together
into quotation marks.

== Quick searches == #Quicksearches

`#12` opens ticket 12, `{1}` opens report 1, and the name of a page opens that page.
""",
    "TracBatchModify": """= Changing many tickets =

Below the result of a query, "Batch Modify" changes the fields of all selected tickets at once.
""",
    "TracAccessibility": """= Keyboard =

Access keys are off until you switch them on in your preferences.
""",
    "TracSyntaxColoring": """= Colours of program code =

Choose a style for program code in your preferences.
""",
    "TracNotification": """= Notifications =

This Trac sends no mail. What happened lately is in the timeline, see TracTimeline.
""",
    "TracInstall": """= Installation =

This Trac is installed and kept by the administrators of Larkspur Works.
""",
}
