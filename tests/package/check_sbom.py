"""check_sbom.py SBOM [PROGRAM]: fails unless the file is SPDX 2.3 with the fields that the standard and the minimum
elements of an SBOM (NTIA, 2021) require, and names each library that the program needs but for the compiler's."""

import json
import re
import subprocess
import sys

with open(sys.argv[1]) as file:
    sbom = json.load(file)
errors = []


def expect(condition, message):
    if not condition:
        errors.append(message)


expect(sbom.get("spdxVersion") == "SPDX-2.3", f"spdxVersion is {sbom.get('spdxVersion')}, expected SPDX-2.3")
expect(sbom.get("dataLicense") == "CC0-1.0", f"dataLicense is {sbom.get('dataLicense')}, expected CC0-1.0")
expect(sbom.get("SPDXID") == "SPDXRef-DOCUMENT", f"SPDXID is {sbom.get('SPDXID')}, expected SPDXRef-DOCUMENT")
expect(sbom.get("name"), "the document has no name")
expect(re.fullmatch(r"https://[^#\s]+", sbom.get("documentNamespace", "")), "documentNamespace is no URI without #")
creation = sbom.get("creationInfo", {})
expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", creation.get("created", "")), "created is no time in UTC")
expect(creation.get("creators") and all(re.match("(Person|Organization|Tool): .", one) for one in creation["creators"]),
       f"creators are {creation.get('creators')}, expected Person:, Organization:, or Tool:")

# Of the list of licenses, and how expressions join them.
LICENSES = {"Apache-2.0", "MIT", "Zlib", "IJG", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI", "libpng-2.0",
            "LGPL-2.1-or-later", "NOASSERTION", "GPL-3.0-or-later WITH GCC-exception-3.1"}
ids = {"SPDXRef-DOCUMENT"}
for package in sbom.get("packages", []):
    name = package.get("name", "a package without a name")
    identifier = package.get("SPDXID", "")
    expect(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", identifier), f"{name}: SPDXID is {identifier!r}")
    expect(identifier not in ids, f"{name}: two packages have the SPDXID {identifier}")
    ids.add(identifier)
    for field in ("name", "downloadLocation", "supplier", "versionInfo", "copyrightText", "licenseConcluded"):
        expect(package.get(field), f"{name}: has no {field}")
    expect(package.get("filesAnalyzed") is False, f"{name}: filesAnalyzed is not false, but there are no files")
    expect(re.match("NOASSERTION$|Person: .|Organization: .", package.get("supplier", "")), f"{name}: supplier")
    unknown = set(package.get("licenseDeclared", "").split(" AND ")) - LICENSES
    expect(not unknown, f"{name}: {unknown} are no licenses that this test knows as SPDX's")
    expect(package.get("versionInfo") != "NOASSERTION", f"{name}: its version was not found")
relations = sbom.get("relationships", [])
expect(any(relation.get("relationshipType") == "DESCRIBES" and relation.get("spdxElementId") == "SPDXRef-DOCUMENT"
           for relation in relations), "no relationship says what the document describes")
for relation in relations:
    for end in ("spdxElementId", "relatedSpdxElement"):
        expect(relation.get(end) in ids, f"{relation}: there is no {relation.get(end)}")
    expect(relation.get("relationshipType") in {"DESCRIBES", "CONTAINS", "DYNAMIC_LINK", "STATIC_LINK"}, f"{relation}")
related = {relation.get("relatedSpdxElement") for relation in relations}
expect(ids - {"SPDXRef-DOCUMENT"} <= related, f"{ids - related} have no relationship")

if len(sys.argv) > 2:
    dynamic = subprocess.run(["readelf", "-d", sys.argv[2]], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", dynamic))
    compilers = {"libc", "libm", "libgcc_s", "libgomp", "libpthread", "libatomic"}
    named = {package.get("packageFileName") for package in sbom["packages"]}
    for library in sorted(needed - compilers):
        expect(library in named or library.startswith("ld-linux"), f"{sys.argv[2]} needs {library}, which is not named")
print("\n".join(errors) or f"{len(ids) - 1} packages, {len(relations)} relationships")
sys.exit(bool(errors))
