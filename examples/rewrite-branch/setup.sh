#!/bin/sh
# Makes `repo`: a small project whose branch `feature` grew as work does.
set -eu
rm -rf repo
git init -q -b main repo
cd repo
git config user.name Tailor
git config user.email tailor@example.invalid
git config commit.gpgsign false

save() {
    git add -A
    git commit -q -m "$1"
}

mkdir src
printf 'cut\nsew\n' > src/steps.txt
printf 'old notes\n' > NOTES
printf '# Shop\n' > README.md
save "Open the shop"

git checkout -q -b feature
printf 'cut\nsew\npress\n' > src/steps.txt
save "wip"
printf 'press: 120 degrees\n' > src/iron.txt
save "iron settings, still wrong"
printf 'press: 150 degrees\n' > src/iron.txt
printf '# Shop\n\nWe press, too.\n' > README.md
save "fix iron, readme"
git rm -q NOTES
printf 'press must come last\n' > src/check.txt
save "tests?? and cleanup"
