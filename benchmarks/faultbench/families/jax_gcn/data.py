"""Small random molecules: atoms with types, bonds with types, one scalar target."""
import numpy as np

N_ATOM_TYPES = 9
N_BOND_TYPES = 4


def random_molecule(rng):
    n = int(rng.integers(9, 30))
    atoms = rng.choice(N_ATOM_TYPES, size=n, p=[.55, .15, .12, .06, .04, .03, .02, .02, .01])

    # spanning tree first, then a few ring closures
    child = np.arange(1, n)
    parent = (rng.random(n - 1) * child).astype(np.int64)
    n_rings = int(rng.integers(0, 4))
    ra = rng.integers(0, n, n_rings)
    rb = rng.integers(0, n, n_rings)
    keep = ra != rb
    src = np.concatenate([parent, ra[keep]])
    dst = np.concatenate([child, rb[keep]])
    bonds = rng.integers(0, N_BOND_TYPES, len(src))

    # undirected -> both directions
    senders = np.concatenate([src, dst]).astype(np.int32)
    receivers = np.concatenate([dst, src]).astype(np.int32)
    edge_type = np.concatenate([bonds, bonds]).astype(np.int32)

    degree = np.bincount(receivers, minlength=n)
    y = 0.3 * (atoms == 1).sum() - 0.2 * (atoms == 2).sum() + 0.15 * (degree > 2).sum() - 0.1 * bonds.mean()
    return dict(atoms=atoms.astype(np.int32), senders=senders, receivers=receivers,
                edge_type=edge_type, y=np.float32(y))


def make_dataset(n_graphs, seed):
    rng = np.random.default_rng(seed)
    return [random_molecule(rng) for _ in range(n_graphs)]


def pad_graphs(graphs, max_nodes, max_edges):
    """Concatenate graphs into one big disconnected graph of fixed size.

    The last node and the last graph are padding; padding edges connect the
    padding node to itself.
    """
    n_graph = len(graphs)
    node_counts = np.array([len(g["atoms"]) for g in graphs])
    edge_counts = np.array([len(g["senders"]) for g in graphs])
    n_node, n_edge = node_counts.sum(), edge_counts.sum()
    assert n_node < max_nodes and n_edge <= max_edges, (n_node, n_edge)

    offset = np.repeat(np.cumsum(node_counts) - node_counts, edge_counts)
    atoms = np.zeros(max_nodes, np.int32)
    senders = np.full(max_edges, max_nodes - 1, np.int32)
    receivers = np.full(max_edges, max_nodes - 1, np.int32)
    edge_type = np.zeros(max_edges, np.int32)
    graph_id = np.full(max_nodes, n_graph, np.int32)

    atoms[:n_node] = np.concatenate([g["atoms"] for g in graphs])
    senders[:n_edge] = np.concatenate([g["senders"] for g in graphs]) + offset
    receivers[:n_edge] = np.concatenate([g["receivers"] for g in graphs]) + offset
    edge_type[:n_edge] = np.concatenate([g["edge_type"] for g in graphs])
    graph_id[:n_node] = np.repeat(np.arange(n_graph), node_counts)
    targets = np.array([g["y"] for g in graphs], np.float32)
    #@ batch arrays=atoms,targets
    return dict(atoms=atoms, senders=senders, receivers=receivers,
                edge_type=edge_type, graph_id=graph_id, targets=targets)


def batches(dataset, batch_size, rng, shuffle=True):
    max_nodes = batch_size * 24
    max_edges = batch_size * 52
    order = rng.permutation(len(dataset)) if shuffle else np.arange(len(dataset))
    for start in range(0, len(order) - batch_size + 1, batch_size):
        chosen = [dataset[i] for i in order[start:start + batch_size]]
        yield pad_graphs(chosen, max_nodes, max_edges)
