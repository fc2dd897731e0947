"""A plugin for pytest: writes what became of every test, as JSON, to the file that `TALARIA_OUTCOMES` names."""

import json
import os


def pytest_terminal_summary(terminalreporter):
    outcomes = {}
    for outcome in ('passed', 'failed', 'error', 'skipped', 'xfailed', 'xpassed'):
        reports = terminalreporter.stats.get(outcome, [])
        outcomes[outcome] = [{'test': report.nodeid, 'said': report.longreprtext[-2000:]} for report in reports]
    with open(os.environ['TALARIA_OUTCOMES'], 'w') as file:
        json.dump(outcomes, file)
