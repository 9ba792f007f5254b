import pytest

from agentgym_jax.text.template import CHATML, COMPACT, ChatTemplate

PLAIN = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '<end>' }}{% endfor %}"
ASK = "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"


def grammar(source, **variables):
    return ChatTemplate(source, variables).grammar()


def test_the_headers_of_a_plain_template_are_found():
    found = grammar(PLAIN + ASK)
    assert found.first_user_header == "<user>"
    assert found.assistant_header == "<end><assistant>"
    assert found.assistant_footer == "<end>"
    assert found.next_user_header == "<user>"
    assert (found.system_header, found.after_system) == ("<system>", "<end><user>")
    assert found.trimmed == frozenset()


def test_built_in_templates_add_no_system_message():
    assert grammar(CHATML).first_user_header == "<|im_start|>user\n"
    assert grammar(COMPACT).first_user_header == "<|user|>"


def test_the_grammar_accepts_rendered_conversations():
    template = ChatTemplate(CHATML, {})
    messages = [
        {"role": role, "content": f"text {i}\n"}
        for i, role in enumerate(["system", "user", "assistant", "user"])
    ]
    assert template.grammar().write(messages) == template.render(messages)


def test_trimming_is_detected_per_role():
    source = PLAIN.replace(
        "m['content']", "(m['content'] | trim if m['role'] == 'user' else m['content'])"
    )
    assert grammar(source + ASK).trimmed == {"user"}


def test_a_template_that_refuses_system_messages_has_no_system_strings():
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    found = grammar(refusing + PLAIN + ASK)
    assert found.system_header is None and found.after_system is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (PLAIN.replace("m['content']", "m['content'].split('</think>')[-1]") + ASK, "</think>"),
        (PLAIN + "{% if messages | length > 3 %}!{% endif %}" + ASK, "not append-only"),
        ("{{ messages | length }}" + PLAIN + ASK, "not append-only"),
        (PLAIN.replace("'<end>'", "('<last>' if loop.last else '<end>')") + ASK, "not append-only"),
        (PLAIN + "{% if add_generation_prompt %}<think>{% endif %}", "not append-only"),
        (PLAIN.replace("m['content']", "m['content'] * 2") + ASK, "written 2 times"),
        (PLAIN.replace("m['content']", "(m['content'] or 'nothing')") + ASK, "nothing"),
        (PLAIN.replace("m['content']", "(m['content'] | upper)") + ASK, "written 0 times"),
        ("{{ strftime_now('%d %b %Y') }}" + PLAIN + ASK, "today's date"),
        ("{% for m in messages %}", "line 1"),
        (None, "no chat template"),
    ],
)
def test_the_error_for_a_template_that_is_not_append_only_gives_the_reason(source, reason):
    with pytest.raises(ValueError, match=reason.replace("/", "\\/")):
        grammar(source)


def test_the_error_shows_the_first_difference_of_the_texts():
    source = PLAIN.replace("m['content']", "(m['content'] or 'nothing')") + ASK
    with pytest.raises(ValueError, match=r"After '<user>' it writes 'nothing<end>"):
        grammar(source)


def test_variables_and_tags_of_hub_templates_are_supported():
    source = "{% generation %}{{ messages | tojson }}{% endgeneration %}{{ bos_token }}{{ tools }}"
    text = ChatTemplate(source, {"bos_token": "<s>"}).render([{"role": "user", "content": "<é>"}])
    assert text == '[{"role": "user", "content": "<é>"}]<s>None'


def test_a_template_cannot_access_python_internals():
    source = "{{ messages.__class__.__mro__ }}"
    with pytest.raises(ValueError, match="unsafe"):
        ChatTemplate(source, {}).render([{"role": "user", "content": ""}])


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        ENDLESS,
        "{% for a in 'x' * 9999 %}{% for b in 'x' * 9999 %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 'xy' * 50000000 * 50 }}",
        "{% set n = namespace(s='xx') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s='xx') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{{ 1 / 0 }}",
        "{{ 2.0 ** 99999 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_can_do_only_a_bounded_amount_of_work(source):
    template = ChatTemplate(source, {})
    with pytest.raises(ValueError, match="chat template: "):
        template.render([{"role": "user", "content": "x"}])
