while test -e hold; do touch waiting; sleep 0.01; done
