module vcnode.io/bench

go 1.24
