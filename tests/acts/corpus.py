"""The corpus: its files, and the few spellings of the draft that its own grammar does not know.

`read` follows the `include` list of `tests/acts/suite.acts.yaml` and returns the tests in that order. A spelling is
rewritten only if the grammar leaves one way to read it; an unknown version, a step of an unknown kind and two tests of one
id are errors, so that nothing is left out unseen.
"""

import copy
from pathlib import Path

import yaml

SUITE = Path('tests/acts/suite.acts.yaml')
LEVELS = ('must', 'should', 'may')
# What a step does; each step has exactly one of them.
KINDS = ('operation', 'raw', 'client_response', 'assertion')

# Operations that the draft names otherwise than its grammar.
OPERATIONS = {
    'set_push_notification_config': 'create_push_config',
    'get_push_notification_config': 'get_push_config',
    'list_push_notification_configs': 'list_push_configs',
    'delete_push_notification_config': 'delete_push_config',
}


class Malformed(Exception):
    """The corpus is not what this runner understands."""


def read(folder):
    """The tests of the corpus that is checked out in `folder`."""
    manifest = Path(folder) / SUITE
    if not manifest.is_file():
        raise Malformed(f'{folder} has no {SUITE}; check out a2aproject/A2A, branch conformance-spec')
    tests = {}
    for name in document(manifest).get('include', []):
        content = document(manifest.parent / name)
        for suite in content.get('suites', []):
            for test in suite['tests']:
                test = normal(test)
                test['variables'] = content.get('variables') or {}
                if tests.setdefault(test['id'], test) is not test:
                    raise Malformed(f'{name}: a second test {test["id"]}')
    return list(tests.values())


def document(path):
    content = yaml.safe_load(path.read_text())
    if str(content.get('acts_version', '')).split('.')[0] != '1':
        raise Malformed(f'{path.name}: acts_version {content.get("acts_version")!r}; this runner reads 1.x')
    return content


def normal(test):
    """The test as the grammar spells it."""
    test = copy.deepcopy(test)
    if test.get('level') not in LEVELS:
        raise Malformed(f'{test["id"]}: level {test.get("level")!r}')
    for step in test['steps']:
        if sum(kind in step for kind in KINDS) != 1:
            raise Malformed(f'{test["id"]}, {step.get("id")}: a step is one of {", ".join(KINDS)}')
        if 'operation' in step:
            step['operation'] = OPERATIONS.get(step['operation'], step['operation'])
            if step['operation'] == 'get_agent_card' and (step.get('params') or {}).get('extended'):
                step['operation'] = 'get_extended_agent_card'
                del step['params']['extended']
            step['params'] = request(step['operation'], step.get('params') or {})
        elif 'raw' in step:
            body = step['raw'].get('body')
            if isinstance(body, dict) and body.get('method') in ('SendMessage', 'SendStreamingMessage'):
                body['params'] = request('send_message', body.get('params') or {})
        expectations(step)
    return test


def request(operation, params):
    """The parameters as the protocol has them: the draft puts the fields of a message beside it, nests push
    configurations, writes the media type of a part into its metadata, and leaves out the id that every message must
    have."""
    params = dict(params)
    if operation in ('send_message', 'send_streaming_message') and isinstance(params.get('message'), dict):
        message = dict(params['message'])
        for name in ('taskId', 'contextId'):
            if name in params:
                message.setdefault(name, params.pop(name))
        message.setdefault('messageId', '{{$uuid}}')
        message['parts'] = [part(each) for each in message.get('parts') or []]
        params['message'] = message
    elif operation == 'create_push_config':
        params.update(params.pop('pushNotificationConfig', {}))
    return params


def part(part):
    metadata = dict(part.get('metadata') or {})
    if 'contentType' not in metadata:
        return part
    part = {**part, 'mediaType': metadata.pop('contentType'), 'metadata': metadata}
    return part if metadata else {name: value for name, value in part.items() if name != 'metadata'}


def expectations(step):
    """Puts what a step expects where the grammar has it."""
    error = step.get('expect_error')
    if error and 'code' in error:
        error.setdefault('error_type', error.pop('code'))
    expect = step.get('expect')
    if not expect:
        return
    outside = {name: expect.pop(name) for name in list(expect) if name not in ('status', 'headers', 'body')}
    if outside.pop('error', None):
        step.setdefault('expect_error', {})
        if not isinstance(expect.get('status'), int):
            expect.pop('status', None)
    if outside:
        expect.setdefault('body', {}).update(outside)
    if not expect:
        del step['expect']
