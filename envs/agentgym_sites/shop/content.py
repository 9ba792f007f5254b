"""Rules for comparing the shop's database (format: `agentgym_sites/content.py`)."""

from agentgym_sites.content import Content, Table

_STAMPS = ("date_created", "date_updated")
_ORDER_NUMBER = "(SELECT number FROM order_order AS o WHERE o.id = order_id)"
_VOUCHER_CODE = "(SELECT code FROM voucher_voucher AS v WHERE v.id = voucher_id)"
_OPEN_BASKETS = "(SELECT id FROM basket_basket WHERE status IN ('Open', 'Frozen', 'Saved'))"
# Owner of a basket, with a mark if the basket is saved. A frozen basket, which is being paid for, is
# compared like an open one.
_BASKET = (
    "(SELECT owner_id || CASE status WHEN 'Saved' THEN ' saved' ELSE '' END "
    "FROM basket_basket AS b WHERE b.id = basket_id)"
)
_PARENT = (
    "(SELECT name FROM catalogue_category AS p "
    "WHERE p.path = substr(catalogue_category.path, 1, length(catalogue_category.path) - 4))"
)

CONTENT: Content = {
    # Ignored: logs, counters and values derived from other tables.
    "analytics_productrecord": None,
    "analytics_userproductview": None,
    "analytics_userrecord": None,
    "analytics_usersearch": None,
    "basket_basket": None,
    "communication_email": None,
    "communication_notification": None,
    "django_session": None,
    "order_communicationevent": None,
    "order_lineprice": None,
    "order_orderstatuschange": None,
    "partner_stockalert": None,
    # Tables with data of customers.
    "address_useraddress": Table(
        free=(
            "date_created",
            "hash",
            "num_orders_as_billing_address",
            "num_orders_as_shipping_address",
            "search_text",
        )
    ),
    "auth_user": Table(free=("last_login",)),
    "basket_basket_vouchers": Table(
        named={"basket_id": _BASKET, "voucher_id": _VOUCHER_CODE},
        where=f"basket_id IN {_OPEN_BASKETS}",
    ),
    "basket_line": Table(
        free=(
            *_STAMPS,
            "line_reference",
            "price_currency",
            "price_excl_tax",
            "price_incl_tax",
            "stockrecord_id",
        ),
        named={"basket_id": _BASKET},
        where=f"basket_id IN {_OPEN_BASKETS}",
    ),
    "wishlists_line": Table(
        named={"wishlist_id": "(SELECT name FROM wishlists_wishlist AS w WHERE w.id = wishlist_id)"}
    ),
    "wishlists_wishlist": Table(free=("date_created", "key")),
    "reviews_productreview": Table(free=("date_created",)),
    # Orders.
    "order_line": Table(
        free=("order_id", "partner_id", "partner_name", "partner_sku", "stockrecord_id", "upc")
    ),
    # A new order's number contains the number of its basket, which depends on the order of the
    # agent's actions.
    "order_order": Table(
        free=("analytics_tracked", "basket_id", "date_placed", "shipping_address_id"),
        named={"number": "CASE WHEN basket_id IS NULL THEN number ELSE '' END"},
    ),
    "order_ordernote": Table(
        free=_STAMPS, named={"order_id": _ORDER_NUMBER}, where="note_type <> 'System'"
    ),
    "order_shippingaddress": Table(free=("search_text",)),
    # Tables of the catalogue and of offers.
    "catalogue_category": Table(
        free=("depth", "numchild", "slug"), named={"path": f"COALESCE({_PARENT}, '')"}
    ),
    "catalogue_product": Table(free=(*_STAMPS, "rating")),
    "django_flatpage_sites": Table(
        named={"flatpage_id": "(SELECT url FROM django_flatpage AS f WHERE f.id = flatpage_id)"}
    ),
    "offer_conditionaloffer": Table(free=("num_applications", "num_orders", "total_discount")),
    "offer_range": Table(free=("date_created", "slug")),
    "partner_partner": Table(free=("code",)),
    "partner_stockrecord": Table(free=(*_STAMPS, "num_allocated")),
    "voucher_voucher": Table(
        free=(
            "date_created",
            "num_basket_additions",
            "num_orders",
            "start_datetime",
            "total_discount",
            "usage",
        ),
        named={"end_datetime": "date(end_datetime)"},
    ),
    "voucher_voucher_offers": Table(
        named={
            "conditionaloffer_id": (
                "(SELECT name FROM offer_conditionaloffer AS c WHERE c.id = conditionaloffer_id)"
            ),
            "voucher_id": _VOUCHER_CODE,
        }
    ),
    "voucher_voucherapplication": None,
}
