"""The assertions of the format: what is expected of a value, and where a path leads in it.

`check` returns the first sentence that says what is wrong, or `None`. A key of an expectation is an operator if it is the
name of one and its argument is of the operator's kind, and a member of the value otherwise: error bodies have members
named `type` and `status`.
"""

import re

MISSING = object()
NUMBER = (int, float)
TYPES = {
    'string': lambda value: isinstance(value, str),
    'number': lambda value: isinstance(value, NUMBER) and not isinstance(value, bool),
    'boolean': lambda value: isinstance(value, bool),
    'array': lambda value: isinstance(value, list),
    'object': lambda value: isinstance(value, dict),
    'null': lambda value: value is None,
}


def number(test):
    return lambda value, limit: TYPES['number'](value) and test(value, limit)


def text(test):
    return lambda value, other: isinstance(value, str) and test(value, other)


def count(test):
    return lambda value, limit: isinstance(value, list) and test(len(value), limit)


# Name: the kind of its argument, and whether a value has it.
OPERATORS = {
    'type': (lambda name: isinstance(name, str) and name in TYPES, lambda value, name: TYPES[name](value)),
    'exists': (TYPES['boolean'], lambda value, wanted: (value is not MISSING) == wanted),
    'absent': (TYPES['boolean'], lambda value, wanted: (value is MISSING) == wanted),
    'contains': (TYPES['string'], lambda value, part: isinstance(value, (str, list)) and part in value),
    'matches': (TYPES['string'], text(lambda value, pattern: re.search(pattern, value) is not None)),
    'starts_with': (TYPES['string'], text(str.startswith)),
    'ends_with': (TYPES['string'], text(str.endswith)),
    'gte': (TYPES['number'], number(lambda value, limit: value >= limit)),
    'lte': (TYPES['number'], number(lambda value, limit: value <= limit)),
    'gt': (TYPES['number'], number(lambda value, limit: value > limit)),
    'lt': (TYPES['number'], number(lambda value, limit: value < limit)),
    'count': (TYPES['number'], count(lambda length, limit: length == limit)),
    'count_gte': (TYPES['number'], count(lambda length, limit: length >= limit)),
    'count_lte': (TYPES['number'], count(lambda length, limit: length <= limit)),
    'one_of': (
        TYPES['array'],
        lambda value, options: any(check(option, value) is None for option in options),
    ),
    'any_of': (
        TYPES['array'],
        lambda value, options: any(check(option, value) is None for option in options),
    ),
    'all_of': (TYPES['array'], lambda value, all_of: all(check(each, value) is None for each in all_of)),
    'not': (lambda _: True, lambda value, other: check(other, value) is not None),
}


def check(expected, value, at=''):
    """What is wrong with `value`, the place `at` of a response."""
    if isinstance(expected, dict):
        for key, argument in expected.items():
            if key == 'items' and isinstance(argument, (dict, list)):
                wrong = elements(argument, value, at)
            elif key in OPERATORS and OPERATORS[key][0](argument):
                holds = OPERATORS[key][1](value, argument)
                wrong = (
                    None if holds else f'{at or "the value"} is {show(value)}, expected {key}: {argument!r}'
                )
            else:
                member = value.get(key, MISSING) if isinstance(value, dict) else MISSING
                wrong = check(argument, member, f'{at}.{key}' if at else key)
            if wrong:
                return wrong
        return None
    if isinstance(expected, list):
        return elements(expected, value, at)
    same = value == expected and isinstance(value, bool) == isinstance(expected, bool)
    return None if same else f'{at or "the value"} is {show(value)}, expected {expected!r}'


def elements(expected, value, at):
    """A list is about the elements at its places, a map about every element."""
    if not isinstance(value, list):
        return f'{at or "the value"} is {show(value)}, expected an array'
    if isinstance(expected, dict):
        expected = [expected] * len(value)
    if len(value) < len(expected):
        return f'{at or "the value"} has {len(value)} elements, expected {len(expected)}'
    return next(filter(None, (check(one, value[i], f'{at}[{i}]') for i, one in enumerate(expected))), None)


def follow(path, value):
    """The values that a path leads to, of which `[*]` makes several."""
    found = [value]
    for name, index in re.findall(r'([^.\[\]]+)|\[(\*|\d+)\]', path):
        if name:
            found = [each[name] for each in found if isinstance(each, dict) and name in each]
        elif index == '*':
            found = [element for each in found if isinstance(each, list) for element in each]
        else:
            found = [each[int(index)] for each in found if isinstance(each, list) and len(each) > int(index)]
    return found


def collection(assertion, value):
    """What is wrong with the elements that an assertion is about, or with the value at its path."""
    for how, holds in (('any', any), ('all', all), ('none', lambda each: not any(each))):
        if how in assertion:
            found = follow(assertion[how]['path'], value)
            if not holds([check(assertion[how]['match'], element) is None for element in found]):
                return f'{how} of {assertion[how]["path"]}: {assertion[how]["match"]!r} is not so of {show(found)}'
    if 'match' in assertion:
        found = follow(assertion.get('path', ''), value)
        return check(assertion['match'], found[0] if found else MISSING, assertion.get('path', ''))
    return None


def until(expression, value):
    """Whether a condition of a poll holds."""
    parsed = re.fullmatch(r'\s*(\S+)\s*(==|!=|\bin\b)\s*(.+?)\s*', expression)
    if not parsed:
        raise ValueError(f'cannot read the condition {expression!r}')
    path, operator, wanted = parsed.groups()
    found = next(iter(follow(path, value)), MISSING)
    if operator == 'in':
        return found in [word.strip().strip('"\'') for word in wanted.strip('[]').split(',')]
    return (found == wanted.strip('"\'')) == (operator == '==')


def show(value):
    return 'missing' if value is MISSING else repr(value)[:300]
